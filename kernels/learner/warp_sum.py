"""Sums in the order in which one warp forms them (``warp_sum.cuh``), in the dtype of the values.

Lane l adds elements l, l + 32, l + 64, … in turn to zero; the partial sums are then added in a
binary tree whose halves stand 16, 8, 4, 2, 1 apart. Both sides do so, and give the same bits.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=np.floating[Any])

#: Lanes of a warp.
WARP = 32


def warp_sum(values: NDArray[F]) -> NDArray[F]:
    """Sum over the last axis of `values` [..., n], giving [...]; 0 where n is 0."""
    n = values.shape[-1]
    chunks = -(-n // WARP)
    padded = np.zeros((*values.shape[:-1], chunks * WARP), values.dtype)
    padded[..., :n] = values
    lanes = np.zeros((*values.shape[:-1], WARP), values.dtype)
    for chunk in range(chunks):
        lanes = lanes + padded[..., chunk * WARP : (chunk + 1) * WARP]
    width = WARP // 2
    while width:
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
        width //= 2
    total: NDArray[F] = lanes[..., 0]
    return total
