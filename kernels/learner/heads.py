"""How a head matrix [B, A + d] is read: action values, or a dueling pair of advantages and a value.

Columns 0..A-1 hold action values, or advantages when the head is dueling; column A then holds the
state value. ``q(a) = (value + adv[a]) - mean(adv)`` (Wang et al. 2016, equation 9), the mean summed
over the actions in turn. The functions keep the dtype of the head, so that a gradient check can run
them in float64.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=np.floating[Any])


def greedy_action(head: NDArray[F], actions: int) -> NDArray[np.int64]:
    """Greedy action of each row [B]: the first of the largest; NaN counts as -inf."""
    columns = head[:, :actions]
    best: NDArray[np.int64] = np.argmax(np.where(np.isnan(columns), -np.inf, columns), axis=1)
    return best


def action_value(
    head: NDArray[F], action: NDArray[np.int64], actions: int, dueling: int
) -> NDArray[F]:
    """Value [B] of one `action` (inside 0..A-1) in each row."""
    taken: NDArray[F] = np.take_along_axis(head, action[:, None], axis=1)[:, 0]  # [B]
    if not dueling:
        return taken
    total = head[:, 0]
    for j in range(1, actions):
        total = total + head[:, j]
    mean = total / head.dtype.type(actions)
    value: NDArray[F] = (head[:, actions] + taken) - mean
    return value
