"""The logistic function and its slope in float64, with the bits of ``sigmoid.cuh``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onegraph.kernels.common.detmath import exp64


def sigmoid64(x: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``s = 1 / (1 + exp(-x))`` and ``s (1 - s)``; 0 and 1 far out, NaN where `x` is NaN."""
    with np.errstate(all="ignore"):
        value = 1.0 / (1.0 + exp64(-np.asarray(x, np.float64)))
        return value, value * (1.0 - value)
