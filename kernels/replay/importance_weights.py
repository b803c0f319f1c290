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


#: Rows that one block weighs as fast as several would with the launch that they need more.
AT_ONCE = 1024


def unscaled(
    leaves: F32,
    total: F64,
    index: NDArray[np.int32],
    counters: I64,
    schedule: F64,
    leaf_count: int,
) -> F64:
    """The weights before they are divided by the largest: float64, for `index` of any size."""
    inside = (index >= 0) & (index < leaf_count)
    leaf = leaves[np.where(inside, index, 0)].astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        times = np.float64(counters[Counter.FILLED]) * (leaf / total[0])
        raw = pow64(times, -schedule[Schedule.BETA])
    usable = inside & (times > 0.0) & np.isfinite(times) & np.isfinite(raw)
    return np.where(usable, raw, 0.0)


def scaled(raw: F64, largest: float) -> F64:
    """`raw` divided by `largest`, or zeros where that is not above zero."""
    return raw / largest if largest > 0.0 else np.zeros_like(raw)


@kernel(
    per="one",
    block=256,
    sparse_reads={"leaves": "n"},
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
    raw = unscaled(leaves, total, index[:n], counters, schedule, leaf_count)
    weights[:n] = scaled(raw, float(raw.max(initial=0.0)))
