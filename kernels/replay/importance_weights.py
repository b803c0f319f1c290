"""Importance-sampling weights of a drawn batch (Schaul et al. 2016, section 3.4).

``w = (FILLED * leaf / total)^-beta``, divided by the largest of the batch: computed in float64 and
rounded to float32 once. A row whose w is not finite (a leaf of zero, an empty or broken tree, an
index outside the leaves) weighs 0; a batch of nothing else weighs 0 throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import pow64
from onegraph.kernels.common.layout import Counter, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64


@kernel(
    per="one",
    block=256,
    leaves="in f32",
    total="in f64",
    index="in i32",
    counters="in i64",
    schedule="in f64",
    weights="out f32",
    n="i32",
    leaf_count="i64",
)
def importance_weights(
    leaves: F32,
    total: F64,
    index: NDArray[np.int32],
    counters: I64,
    schedule: F64,
    weights: F32,
    n: int,
    leaf_count: int,
) -> None:
    """`index` [n] and the tree's `leaves` [N] and `total` [1] to `weights` [n]."""
    taken = index[:n]
    inside = (taken >= 0) & (taken < leaf_count)
    leaf = leaves[np.where(inside, taken, 0)].astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        scaled = np.float64(counters[Counter.FILLED]) * (leaf / total[0])
        raw = pow64(scaled, -schedule[Schedule.BETA])
    usable = inside & (scaled > 0.0) & np.isfinite(scaled) & np.isfinite(raw)
    raw = np.where(usable, raw, 0.0)
    largest = raw.max(initial=0.0)
    weights[:n] = raw / largest if largest > 0.0 else 0.0
