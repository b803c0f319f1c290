"""The gradient budget: components, their norms and the scales that hold them to their shares.

Each component of the gradient owns a share of the norm that the whole may have, so that no
auxiliary loss can drown the Q gradient. With ``cap = share * max_norm``::

    scale = 0             share 0: the component is removed
          = cap / norm    the norm is above the cap
          = 1             else, and wherever max_norm is 0 (no budget)

The shares sum to 1, so that by the triangle inequality the scaled components' sum has a norm of at
most `max_norm`. A norm that is not finite leaves its component as it is (scale 1), for the finite
check to find. A removed component is not read: its NaN is gone with it. So is a component that is
scaled to less than float32 can hold.

Norms are float64 sums of squares of finite float32 numbers, which can't overflow; norm and scale
are rounded to float32 once.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import ADAM_GROUPS, Counter


class Component(IntEnum):
    """Elements of a budget's shares, norms and scales [6]."""

    Q = 0
    IQL_HIGH = 1
    IQL_LOW = 2
    DENOISE = 3
    ATTENTION = 4
    SELECTIVITY = 5


#: The component that each Adam group's range of the gradient belongs to.
COMPONENT_OF = {
    Counter.ADAM_TRUNK: Component.Q,
    Counter.ADAM_SELECTIVITY: Component.SELECTIVITY,
    Counter.ADAM_DENOISE: Component.DENOISE,
    Counter.ADAM_IQL: Component.IQL_HIGH,
    Counter.ADAM_IQL_LOW: Component.IQL_LOW,
    Counter.ADAM_IQN: Component.Q,
    Counter.ADAM_ATTENTION: Component.ATTENTION,
}

#: Columns of the partial sums: one a group, and the auxiliary gradient.
AUX_COLUMN = ADAM_GROUPS
NORM_COLUMNS = ADAM_GROUPS + 1


def component_squares(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of squares [6] of the components from those of the columns [8]."""
    squares = np.zeros(len(Component))
    for group, component in COMPONENT_OF.items():
        squares[component] += sums[group]
    squares[Component.DENOISE] += sums[AUX_COLUMN]
    return squares


def budget_scales(
    norms: NDArray[np.float64], shares: NDArray[np.float64], max_norm: float
) -> NDArray[np.float32]:
    """Scales [6] of components with these norms and shares [6]."""
    cap = shares * max_norm
    with np.errstate(all="ignore"):
        over = np.isfinite(norms) & (norms > cap) & (max_norm > 0.0)
        scales = np.where(over, cap / norms, 1.0).astype(np.float32)
    scales[~(shares > 0.0)] = 0.0
    return scales
