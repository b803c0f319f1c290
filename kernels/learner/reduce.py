"""Float64 sums in the order in which a block of `LANES` threads forms them (``reduce.cuh``).

Thread t adds elements t, t + LANES, t + 2 LANES, … in turn; the partial sums are then added in a
binary tree whose halves stand LANES/2, LANES/4, …, 1 apart. Both sides do so, and give the same
bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LANES = 256


def lane_sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over the last axis of `values` [..., n], giving float64 [...]; 0 where n is 0."""
    n = values.shape[-1]
    rows = -(-n // LANES)
    padded = np.zeros((*values.shape[:-1], rows * LANES))
    padded[..., :n] = values
    lanes = np.zeros((*values.shape[:-1], LANES))
    for row in range(rows):
        lanes += padded[..., row * LANES : (row + 1) * LANES]
    width = LANES // 2
    while width:
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
        width //= 2
    return lanes[..., 0]
