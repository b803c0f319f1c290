"""``raw_v = W^T u`` of each matrix, the first product of a power iteration (see `spectral`).

The first `count` matrices of the table are worked on. Sums are float32, in the order of `reduce`
with a warp's threads. ``raw``, laid out like ``vectors``, gets the products in the places of v.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.spectral import left_product, matrices_of

#: Columns of a tile, which one block takes.
TILE = 32


@kernel(
    per="block",
    work="count*tiles",
    block=1024,
    sparse_reads={"raw": 0},
    params="in f32",
    target="in f32",
    table="in i64",
    vectors="in f32",
    raw="inout f32",
    count="i32",
    tiles="i32",
)
def spectral_left(
    params: NDArray[np.float32],
    target: NDArray[np.float32],
    table: NDArray[np.int64],
    vectors: NDArray[np.float32],
    raw: NDArray[np.float32],
    *,
    count: int,
    tiles: int,  # noqa: ARG001 - the launch shape
) -> None:
    """Write W^T u; `tiles` says among how many blocks the columns of a matrix are shared."""
    for matrix in matrices_of(table, count):
        w = matrix.of(target if matrix.source else params)
        matrix.uv(raw)[1][:] = left_product(w, matrix.uv(vectors)[0])
