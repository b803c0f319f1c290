"""Project out of the gradient what conflicts with the vaccine gradient, in place.

Where ``g.v < 0``: ``g = g - (g.v / v.v) v``, which is orthogonal to v up to float32 rounding (the
projection of Yu et al. 2020, "Gradient surgery for multi-task learning", equation 1, on one side
alone). Else g stays bit for bit as it is: also where v is 0, and where either product is not
finite (a NaN in g then reaches the finite check; one in v alone vaccinates nothing). Each element
is formed in float64 and rounded once.

The dot products are the sums of `vaccine_partial`'s, in the order of `reduce` with a warp's
threads.
``removed`` gets the factor g.v / v.v that was applied, 0 where nothing was: how strongly the two
batches conflicted.

``partial`` gets the sums of squares of the chunks of the result, in `grad_norm_partial`'s order:
`clip_factor` can follow at once, without another pass over the gradient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES, WARP, chunked, lane_sum


@kernel(
    per="block",
    work="parts",
    block=LANES,
    grad="inout f32",
    vaccine="in f32",
    dots="in f64",
    removed="out f32",
    partial="out f64",
    n="i64",
    parts="i32",
)
def project_gradient(
    grad: NDArray[np.float32],
    vaccine: NDArray[np.float32],
    dots: NDArray[np.float64],
    removed: NDArray[np.float32],
    partial: NDArray[np.float64],
    *,
    n: int,
    parts: int,
) -> None:
    """Change `grad` [n] by `vaccine` [n] and `dots` [2, parts]; write `partial` [parts]."""
    cross, square = lane_sum(dots[: 2 * parts].reshape(2, parts), WARP)
    with np.errstate(all="ignore"):
        conflict = cross < 0.0 and np.isfinite(cross) and np.isfinite(square) and square > 0.0
        factor = cross / square if conflict else 0.0
        if conflict:
            grad[:n] = grad[:n].astype(np.float64) - factor * vaccine[:n].astype(np.float64)
        removed[0] = factor
        partial[:parts] = lane_sum(chunked(np.square(grad[:n], dtype=np.float64), parts))
