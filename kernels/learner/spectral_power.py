"""One power iteration on each matrix, and its largest singular value (see `spectral`).

The first `count` matrices of the table are worked on. `iterate` 0 leaves u and v as they are and
forms sigma from them: acting between two learning steps normalises, but does not iterate.

Products of a matrix with a vector are float32 sums, norms and sigma float64 sums of their results,
all in the order of `reduce` with a warp's threads. ``raw`` is laid
out like ``vectors`` and holds the products before they are divided by their norms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.spectral import matrices_of, power_iteration


# Few and small matrices: a block for each, as large as can be.
@kernel(
    per="block",
    work="count",
    block=1024,
    sparse_reads={"raw": 0},
    params="in f32",
    target="in f32",
    table="in i64",
    vectors="inout f32",
    raw="inout f32",
    sigma="out f64",
    count="i32",
    iterate="i32",
)
def spectral_power(
    params: NDArray[np.float32],
    target: NDArray[np.float32],
    table: NDArray[np.int64],
    vectors: NDArray[np.float32],
    raw: NDArray[np.float32],
    sigma: NDArray[np.float64],
    *,
    count: int,
    iterate: int,
) -> None:
    """Advance `vectors`, and write `sigma` [count]."""
    for i, matrix in enumerate(matrices_of(table, count)):
        w = matrix.of(target if matrix.source else params)
        u, v = matrix.uv(vectors)
        found = power_iteration(w, u, v, iterate=bool(iterate))
        u[:], v[:], sigma[i] = found.u, found.v, found.sigma
        raw_u, raw_v = matrix.uv(raw)
        raw_u[:] = found.raw_u
        if found.raw_v is not None:
            raw_v[:] = found.raw_v
