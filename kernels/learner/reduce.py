"""Sums in the order in which a block of `LANES` threads forms them (``reduce.cuh``).

Thread t adds elements t, t + LANES, t + 2 LANES, … in turn; the partial sums are then added in a
binary tree whose halves stand LANES/2, LANES/4, …, 1 apart. Both sides do so, and give the same
bits. A warp does the same with `WARP` threads. Sums are float64 where nothing else is said.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=np.floating[Any])

LANES = 256
WARP = 32


def lane_sum(values: NDArray[F], threads: int = LANES) -> NDArray[F]:
    """Sum over the last axis of `values` [..., n] in their dtype, giving [...]; 0 where n is 0."""
    n = values.shape[-1]
    rows = -(-n // threads)
    padded = np.zeros((*values.shape[:-1], rows * threads), values.dtype)
    padded[..., :n] = values
    lanes = np.zeros((*values.shape[:-1], threads), values.dtype)
    for row in range(rows):
        lanes += padded[..., row * threads : (row + 1) * threads]
    width = threads // 2
    while width:
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
        width //= 2
    total: NDArray[F] = lanes[..., 0]
    return total


def chunk_size(n: int, parts: int) -> int:
    """Length of each of the `parts` chunks of n elements: a multiple of `LANES`; the last is short.

    Chunks past the end are empty.
    """
    return -(-n // (parts * LANES)) * LANES


def chunked(values: NDArray[np.float64], parts: int) -> NDArray[np.float64]:
    """`values` [n] in chunks [parts, chunk], with zeros past the end."""
    chunk = chunk_size(len(values), parts)
    padded = np.zeros(parts * chunk)
    padded[: len(values)] = values
    return padded.reshape(parts, chunk)
