"""Thresholds of a prioritized draw, from Philox and the tree's total.

``u_i`` is the first uniform (53 bits) of Philox at (position i, the step's RNG counter, SAMPLE).
Stratified (Schaul et al. 2016, appendix B.2.1): ``(i + u_i) * total / n``, one draw a stratum; else
``u_i * total``. A total that is not finite gives thresholds that are not; the descent takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, StreamTag
from onegraph.kernels.common.philox import philox_uniform

if TYPE_CHECKING:
    from onegraph.kernels.replay.tree import F64, I64


@kernel(
    work="n",
    total="in f64",
    counters="in i64",
    thresholds="out f64",
    n="i32",
    seed="u64",
    stratified="i32",
)
def philox_thresholds(
    total: F64, counters: I64, thresholds: F64, n: int, seed: int, stratified: int
) -> None:
    """`total` [1], `counters` [16] to `thresholds` [n]."""
    position = np.arange(n)
    u = philox_uniform(seed, position, counters[Counter.RNG], StreamTag.SAMPLE)[:, 0]
    with np.errstate(invalid="ignore", over="ignore"):
        thresholds[:n] = (position + u) * total[0] / n if stratified else u * total[0]
