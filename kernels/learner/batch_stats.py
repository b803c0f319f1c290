"""Statistics of a batch: mean loss, mean and largest absolute TD error, mean value taken.

Float64, added in the order of `reduce`, so that host and device agree bit for bit. A NaN makes the
statistics that it enters NaN; an empty batch gives zeros. Elements: see `Stat`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES, lane_sum


class Stat(IntEnum):
    """Elements of ``stats`` (float64 [4])."""

    LOSS = 0
    TD_MEAN = 1
    Q_MEAN = 2
    TD_MAX = 3


@kernel(
    per="one",
    block=LANES,
    loss="in f32",
    td="in f32",
    q_taken="in f32",
    stats="out f64",
    n="i32",
)
def batch_stats(
    loss: NDArray[np.float32],
    td: NDArray[np.float32],
    q_taken: NDArray[np.float32],
    stats: NDArray[np.float64],
    *,
    n: int,
) -> None:
    """Write the four statistics of `loss`, `td` and `q_taken`, each [B]."""
    size = np.abs(td[:n].astype(np.float64))
    with np.errstate(all="ignore"):
        sums = lane_sum(np.stack([loss[:n].astype(np.float64), size, q_taken[:n]]))
        stats[Stat.LOSS : Stat.TD_MAX] = sums / max(n, 1)
        stats[Stat.TD_MAX] = size.max(initial=0.0)
