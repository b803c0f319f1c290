"""The global gradient norm, the factor that clips it and the skip flag, in one launch.

`grad_norm_partial`, then `clip_factor`, with the same bits: on the device the last block to finish
its chunk adds the partial sums up. ``ticket`` counts the blocks that are done: 0 before and after.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.clip_factor import clip_factor
from onegraph.kernels.learner.grad_norm_partial import grad_norm_partial
from onegraph.kernels.learner.reduce import LANES


@kernel(
    per="block",
    work="parts",
    block=LANES,
    grad="in f32",
    partial="out f64",
    clip="out f32",
    skip="out i32",
    ticket="inout u32",
    n="i64",
    parts="i32",
    max_norm="f64",
)
def grad_norm(
    grad: NDArray[np.float32],
    partial: NDArray[np.float64],
    clip: NDArray[np.float32],
    skip: NDArray[np.int32],
    ticket: NDArray[np.uint32],
    *,
    n: int,
    parts: int,
    max_norm: np.float64,
) -> None:
    """Write (norm, scale) of `grad` [n] to `clip` [2] and the flag to `skip` [1]."""
    grad_norm_partial(grad, partial, n=n, parts=parts)
    clip_factor(partial, clip, skip, parts=parts, max_norm=max_norm)
    ticket[0] = 0
