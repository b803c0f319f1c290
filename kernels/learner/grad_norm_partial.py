"""Sums of squares of the gradient's `parts` contiguous chunks, in float64 and in one stated order.

A chunk is a multiple of `reduce.LANES` elements (the last may be shorter, and those past the end
are empty and give 0). A NaN or an infinity anywhere makes its partial sum non-finite, which
`clip_factor` turns into the skip flag; a float64 square of a finite float32 can't overflow.
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
    partial="out f64",
    n="i64",
    parts="i32",
)
def grad_norm_partial(
    grad: NDArray[np.float32], partial: NDArray[np.float64], *, n: int, parts: int
) -> None:
    """Write the sum of squares of each chunk of `grad` [n] to `partial` [parts]."""
    with np.errstate(all="ignore"):
        squares = np.square(grad[:n], dtype=np.float64)
        partial[:parts] = lane_sum(chunked(squares, parts))
