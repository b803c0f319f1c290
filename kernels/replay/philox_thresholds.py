"""Thresholds of a prioritized draw, from Philox and the tree's total.

``u_i`` is the first uniform (53 bits) of Philox at (position i, the step's RNG counter, SAMPLE).
Stratified (Schaul et al. 2016, appendix B.2.1): ``(i mod strata + u_i) * total / strata``, so that
`strata` draws in a row are one from each stratum; two batches in one draw are 2 B draws from B
strata. With no strata ``u_i * total``. A total that is not finite gives thresholds that are not;
the descent takes them.
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
    strata="i32",
)
def philox_thresholds(
    total: F64, counters: I64, thresholds: F64, n: int, seed: int, strata: int
) -> None:
    """`total` [1], `counters` [16] to `thresholds` [n]."""
    position = np.arange(n)
    u = philox_uniform(seed, position, counters[Counter.RNG], StreamTag.SAMPLE)[:, 0]
    with np.errstate(invalid="ignore", over="ignore"):
        thresholds[:n] = (position % strata + u) * total[0] / strata if strata > 0 else u * total[0]
