"""u and sigma of each matrix, and its weights over max(1, sigma / cap) (see `spectral`).

``u`` is what `spectral_right` left in ``raw``, over its norm; or as it is, where the norm is zero
or not finite, and with `iterate` 0. ``sigma`` is the float64 sum of u times that, in the order of
`reduce` with a warp's threads, as the norm is.

The weights are multiplied by cap / sigma, rounded to float32 once, where sigma is above the cap,
else by 1; they go to buffers of their own. ``normal`` is laid out like ``params`` and
``normal_target`` like ``target``; only the matrices of the table are written. The parameters stay
as they are, so that a skipped step changes nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES
from onegraph.kernels.learner.spectral import above_cap, matrices_of, normalised_or, sigma_of


@kernel(
    per="block",
    work="count*parts",
    block=LANES,
    sparse_reads={"normal": 0, "normal_target": 0},
    params="in f32",
    target="in f32",
    table="in i64",
    vectors="inout f32",
    raw="in f32",
    sigma="out f64",
    normal="inout f32",
    normal_target="inout f32",
    count="i32",
    parts="i32",
    iterate="i32",
    cap="f64",
)
def spectral_scale(
    params: NDArray[np.float32],
    target: NDArray[np.float32],
    table: NDArray[np.int64],
    vectors: NDArray[np.float32],
    raw: NDArray[np.float32],
    sigma: NDArray[np.float64],
    normal: NDArray[np.float32],
    normal_target: NDArray[np.float32],
    *,
    count: int,
    parts: int,  # noqa: ARG001 - the launch shape
    iterate: int,
    cap: np.float64,
) -> None:
    """Advance u, and write `sigma` and the weights of `count` matrices, each in `parts` chunks."""
    for i, matrix in enumerate(matrices_of(table, count)):
        source, out = (target, normal_target) if matrix.source else (params, normal)
        u, raw_u = matrix.uv(vectors)[0], matrix.uv(raw)[0]
        if iterate:
            u[:] = normalised_or(u, raw_u)
        sigma[i] = sigma_of(u, raw_u)
        large = above_cap(float(sigma[i]), float(cap))
        with np.errstate(all="ignore"):
            scale = out.dtype.type(cap / sigma[i] if large else 1.0)
            out[matrix.elements] = source[matrix.elements] * scale
