"""v of each matrix, and ``raw_u = W v``, the second product of a power iteration (see `spectral`).

``v`` is what `spectral_left` left in ``raw``, over its norm; or as it is, where the norm is zero or
not finite, and with `iterate` 0: acting between two learning steps normalises, but does not
iterate.

The first `count` matrices of the table are worked on. Products are float32 sums, norms float64
sums, in the order of `reduce` with a warp's threads. ``raw`` gets the products in the places of u.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES
from onegraph.kernels.learner.spectral import matrices_of, normalised_or, right_product

#: Rows of a tile, which one block takes.
TILE = 8


@kernel(
    per="block",
    work="count*tiles",
    block=LANES,
    params="in f32",
    target="in f32",
    table="in i64",
    vectors="inout f32",
    raw="inout f32",
    count="i32",
    tiles="i32",
    iterate="i32",
)
def spectral_right(
    params: NDArray[np.float32],
    target: NDArray[np.float32],
    table: NDArray[np.int64],
    vectors: NDArray[np.float32],
    raw: NDArray[np.float32],
    *,
    count: int,
    tiles: int,  # noqa: ARG001 - the launch shape
    iterate: int,
) -> None:
    """Advance v, and write W v; `tiles` says among how many blocks a matrix' rows are shared."""
    for matrix in matrices_of(table, count):
        w = matrix.of(target if matrix.source else params)
        v = matrix.uv(vectors)[1]
        raw_u, raw_v = matrix.uv(raw)
        if iterate:
            v[:] = normalised_or(v, raw_v)
        raw_u[:] = right_product(w, v)
