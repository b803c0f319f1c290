"""Partial dot products of the gradient with the vaccine gradient, and of that with itself.

Chunks and order are those of `grad_norm_partial`; the products of float32 numbers are exact in
float64. A NaN or an infinity makes the sums that it enters non-finite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES, chunked, lane_sum


@kernel(
    per="block",
    work="parts",
    block=LANES,
    grad="in f32",
    vaccine="in f32",
    dots="out f64",
    n="i64",
    parts="i32",
)
def vaccine_partial(
    grad: NDArray[np.float32],
    vaccine: NDArray[np.float32],
    dots: NDArray[np.float64],
    *,
    n: int,
    parts: int,
) -> None:
    """Write ``g.v`` and ``v.v`` of each chunk of `grad` and `vaccine` [n] to `dots` [2, parts]."""
    v = vaccine[:n].astype(np.float64)
    with np.errstate(all="ignore"):
        dots[:parts] = lane_sum(chunked(grad[:n] * v, parts))
        dots[parts : 2 * parts] = lane_sum(chunked(v * v, parts))
