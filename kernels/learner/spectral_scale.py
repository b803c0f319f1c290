"""Weights over max(1, sigma / cap), in buffers of their own (see `spectral`).

``scale`` is cap / sigma, rounded to float32 once, where sigma is above the cap, else 1. ``normal``
is laid out like ``params`` and ``normal_target`` like ``target``; only the matrices of the table
are written. The parameters stay as they are, so that a skipped step changes nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES
from onegraph.kernels.learner.spectral import above_cap, matrices_of


@kernel(
    per="block",
    work="count*parts",
    block=LANES,
    sparse_reads={"normal": 0, "normal_target": 0},
    params="in f32",
    target="in f32",
    table="in i64",
    sigma="in f64",
    normal="inout f32",
    normal_target="inout f32",
    count="i32",
    parts="i32",
    cap="f64",
)
def spectral_scale(
    params: NDArray[np.float32],
    target: NDArray[np.float32],
    table: NDArray[np.int64],
    sigma: NDArray[np.float64],
    normal: NDArray[np.float32],
    normal_target: NDArray[np.float32],
    *,
    count: int,
    parts: int,  # noqa: ARG001 - the launch shape
    cap: np.float64,
) -> None:
    """Write the normalised weights of the first `count` matrices, each in `parts` chunks."""
    for i, matrix in enumerate(matrices_of(table, count)):
        source, out = (target, normal_target) if matrix.source else (params, normal)
        large = above_cap(float(sigma[i]), float(cap))
        scale = out.dtype.type(cap / sigma[i] if large else 1.0)
        with np.errstate(all="ignore"):
            out[matrix.elements] = source[matrix.elements] * scale
