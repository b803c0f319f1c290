"""How far the quantile head may be trusted: an average of its loss, and the weight that it earns.

``ready`` is float64 [2] (`Ready`). With m the mean of ``loss`` [B], summed as `reduce` does::

    ema = m                                at the first step: while ema is NaN
        = ema * decay + (1 - decay) * m    from then on
    w   = clip((high - ema) / (high - low), 0, 1)

so that the plain head alone gives the action values while the average is at `high` or above, and
the quantile head alone at `low` or below. A skipped step (``skip[0]`` other than 0), a mean that is
not finite and an empty batch change nothing. 0 <= decay < 1 and low < high are the caller's.
Start from `initial_readiness`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES, lane_sum


class Ready(IntEnum):
    """Elements of ``ready`` (float64 [2])."""

    EMA = 0
    WEIGHT = 1


def initial_readiness(weight: float) -> NDArray[np.float64]:
    """``ready`` before the first step: no average yet, and the weight until there is one."""
    return np.array([np.nan, weight])


@kernel(
    per="one",
    block=LANES,
    loss="in f32",
    skip="in i32",
    ready="inout f64",
    n="i32",
    decay="f64",
    low="f64",
    high="f64",
)
def iqn_readiness(
    loss: NDArray[np.float32],
    skip: NDArray[np.int32],
    ready: NDArray[np.float64],
    *,
    n: int,
    decay: np.float64,
    low: np.float64,
    high: np.float64,
) -> None:
    """Take the mean of `loss` [n] into the average, and write the weight."""
    with np.errstate(all="ignore"):
        mean = lane_sum(loss[:n].astype(np.float64)) / max(n, 1)
        if skip[0] != 0 or n <= 0 or not np.isfinite(mean):
            return
        before = ready[Ready.EMA]
        ema = mean if np.isnan(before) else before * decay + (1.0 - decay) * mean
        share = (high - ema) / (high - low)
        ready[Ready.EMA] = ema
        ready[Ready.WEIGHT] = 0.0 if share < 0.0 else 1.0 if share > 1.0 else share
