"""Gradients by central differences, to hold analytic ones to."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def numeric_gradient(
    value: Callable[[], float], at: NDArray[np.float64], step: float = 1e-6
) -> NDArray[np.float64]:
    """The slope of `value()` in each element of `at`, which is changed and put back."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        kept = at[index]
        at[index] = kept + step
        above = value()
        at[index] = kept - step
        gradient[index] = (above - value()) / (2 * step)
        at[index] = kept
    return gradient
