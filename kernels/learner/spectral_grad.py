"""Gradients of the weights from those of the normalised weights, in place (see `spectral`).

``grad`` is laid out like the parameters, and changes where a table's matrix has a sigma above the
cap. The sums of `spectral_dot` are added in the order of `reduce` with a warp's threads. An element
is formed in float64 and rounded to float32 once. A NaN or an infinity in a scaled matrix' gradient
or weights spreads to the whole of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES, WARP, lane_sum
from onegraph.kernels.learner.spectral import matrices_of, spectral_gradient


@kernel(
    per="block",
    work="count*parts",
    block=LANES,
    grad="inout f32",
    table="in i64",
    vectors="in f32",
    sigma="in f64",
    dots="in f64",
    count="i32",
    parts="i32",
    cap="f64",
)
def spectral_grad(
    grad: NDArray[np.float32],
    table: NDArray[np.int64],
    vectors: NDArray[np.float32],
    sigma: NDArray[np.float64],
    dots: NDArray[np.float64],
    *,
    count: int,
    parts: int,
    cap: np.float64,
) -> None:
    """Change `grad` in the places of the first `count` matrices."""
    sums = lane_sum(dots[: count * parts].reshape(count, parts), WARP)
    for i, matrix in enumerate(matrices_of(table, count)):
        here = matrix.of(grad)
        u, v = matrix.uv(vectors)
        with np.errstate(all="ignore"):
            here[:] = spectral_gradient(here, float(sums[i]), u, v, float(sigma[i]), float(cap))
