"""A residual block's sum and the layer normalisation that follows it, in one launch.

``total = a + s b`` as `scaled_add` computes it, and ``out``, ``mean`` and ``rstd`` as `layer_norm`
does of ``total`` [rows, cols]: the bits are those of the two launches. s is ``depth[0]`` where
`scaled` is other than 0, and 1 (`depth` is not read) where it is 0; a factor of 0 gives a, whatever
`b` holds. No output may overlap an input or another output.

A NaN, an infinity, or numbers so large that a sum overflows make their row of `out` NaN and leave
the others alone. `eps` must be positive.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.layer_norm import layer_norm
from onegraph.kernels.learner.scaled_add import scaled_add


@kernel(
    per="warp",
    work="rows",
    block=128,
    a="in f32",
    b="in f32",
    depth="in f32",
    total="out f32",
    scale="in f32",
    shift="in f32",
    out="out f32",
    mean="out f32",
    rstd="out f32",
    rows="i32",
    cols="i32",
    eps="f32",
    scaled="i32",
)
def add_norm(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    depth: NDArray[np.float32],
    total: NDArray[np.float32],
    scale: NDArray[np.float32],
    shift: NDArray[np.float32],
    out: NDArray[np.float32],
    mean: NDArray[np.float32],
    rstd: NDArray[np.float32],
    *,
    rows: int,
    cols: int,
    eps: np.float32,
    scaled: int,
) -> None:
    """Write `total` and `out` [rows, cols], `mean` and `rstd` [rows]."""
    scaled_add(a, b, depth, total, n=rows * cols, scaled=scaled)
    layer_norm(total, scale, shift, out, mean, rstd, rows=rows, cols=cols, eps=eps)
