"""Partial sums of gradient times weight of each matrix, for `spectral_grad`.

``grad`` holds the gradients of the normalised weights, laid out like the parameters. Each matrix is
cut into `parts` chunks as in `grad_norm_partial`; float64, in the order of `reduce`. A NaN or an
infinity makes the sums that it enters non-finite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES, chunked, lane_sum
from onegraph.kernels.learner.spectral import matrices_of


@kernel(
    per="block",
    work="count*parts",
    block=LANES,
    grad="in f32",
    params="in f32",
    table="in i64",
    dots="out f64",
    count="i32",
    parts="i32",
)
def spectral_dot(
    grad: NDArray[np.float32],
    params: NDArray[np.float32],
    table: NDArray[np.int64],
    dots: NDArray[np.float64],
    *,
    count: int,
    parts: int,
) -> None:
    """Write the sums of the first `count` matrices' chunks to `dots` [count, parts]."""
    for i, matrix in enumerate(matrices_of(table, count)):
        at = matrix.elements
        with np.errstate(all="ignore"):
            products = grad[at].astype(np.float64) * params[at].astype(np.float64)
            dots[i * parts : (i + 1) * parts] = lane_sum(chunked(products, parts))
