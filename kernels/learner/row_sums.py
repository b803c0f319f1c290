"""Float32 sums along and across the rows of a matrix, in the orders of ``row_sums.cuh``.

Along a row, one warp: lane l adds elements l, l + 32, l + 64, … in turn, and the 32 partial sums
are added in a binary tree whose halves stand 16, 8, 4, 2, 1 apart.

Across the rows, a block of 256 threads for eight columns: lane l of a column adds rows l, l + 32,
l + 64, … in turn; of each four lanes that follow one another (they stand in one warp) come
``(l0 + l2) + (l1 + l3)``; and those eight are added in turn. Neither order depends on the grid.

The functions keep the dtype of what they add, so that a gradient check can run them in float64.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=np.floating[Any])

#: Lanes of a warp, and row lanes of a column.
WARP = 32

#: Columns that a block adds, as row_sums.cuh has them.
TILE_COLUMNS = 8


def lane_sums(values: NDArray[F], count: int = WARP) -> NDArray[F]:
    """The sums [count, ...] of lanes that each take every `count`-th of the first axis in turn."""
    lanes = np.zeros((count, *values.shape[1:]), values.dtype)
    for first in range(0, len(values), count):
        part = values[first : first + count]
        lanes[: len(part)] += part
    return lanes


def add_lanes(lanes: NDArray[F]) -> NDArray[F]:
    """The sum [n] of a column's 32 lanes [32, n], as a block adds them."""
    fours = lanes.reshape(WARP // 4, 4, -1)
    warps = (fours[:, 0] + fours[:, 2]) + (fours[:, 1] + fours[:, 3])
    total = np.zeros(lanes.shape[1], lanes.dtype)
    for warp in warps:
        total = total + warp
    return total


def warp_sum(values: NDArray[F]) -> NDArray[F]:
    """Sum of each row of `values` [rows, n], giving [rows]; 0 where n is 0."""
    lanes = lane_sums(values.T)
    width = WARP // 2
    while width:
        lanes = lanes[:width] + lanes[width : 2 * width]
        width //= 2
    total: NDArray[F] = lanes[0]
    return total


def sum_over_rows(values: NDArray[F]) -> NDArray[F]:
    """Sum of each column of `values` [rows, n], giving [n]; 0 where there are no rows."""
    return add_lanes(lane_sums(values))
