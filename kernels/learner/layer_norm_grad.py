"""The gradients of layer normalisation, in its input, scale and shift, in one launch.

With g the gradient in the output of `layer_norm`, and ``h = (x - mean) rstd``::

    grad_in    = rstd ((g scale - mean_j(g scale)) - h mean_j(g scale h))     (+ residual)
    grad_scale = sum over rows of g h
    grad_shift = sum over rows of g

``mean_j`` is `row_sums.warp_sum` over the columns, divided by their number; the sums over rows are
`row_sums.sum_over_rows`. All float32. Where `with_residual` is other than 0, `residual` [rows,
cols] is added: the gradient that reaches x by the skip of a residual block. Where `after_relu` is
other than 0, x is what a ReLU gave, and `grad_in` becomes 0 where x is not above 0 (or is NaN), as
it is on the other side of the ReLU. Where `with_branch` is other than 0, ``grad_branch`` [rows,
cols] is what `scaled_add_grad` makes of `grad_in` with the scale ``depth[0]``: the gradient in the
branch of the block whose output x is. Row blocks and column blocks share one launch: neither needs
what the other computes.

NaN and infinity in a row of g, x or the residual stay in that row of `grad_in`, and in their
columns of the other two (in all columns, where the row's mean or rstd is not finite).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.row_sums import TILE_COLUMNS, F, sum_over_rows, warp_sum
from onegraph.kernels.learner.scaled_add_grad import scaled_add_grad

#: Rows that one block takes, a warp each.
TILE_ROWS = 8


def tile_count(rows: int, cols: int) -> int:
    """Blocks' worth of work: tiles of eight rows, then tiles of eight columns."""
    return -(-rows // TILE_ROWS) + -(-cols // TILE_COLUMNS)


def layer_norm_gradients(
    x: NDArray[F], mean: NDArray[F], rstd: NDArray[F], scale: NDArray[F], grad_out: NDArray[F]
) -> tuple[NDArray[F], NDArray[F], NDArray[F]]:
    """Gradients in x [rows, cols], scale [cols] and shift [cols], in the dtype of `x`."""
    cols = x.dtype.type(x.shape[1])
    h = (x - mean[:, None]) * rstd[:, None]
    scaled = grad_out * scale
    first = warp_sum(scaled) / cols
    second = warp_sum(scaled * h) / cols
    grad_in: NDArray[F] = rstd[:, None] * ((scaled - first[:, None]) - h * second[:, None])
    return grad_in, sum_over_rows(grad_out * h), sum_over_rows(grad_out)


@kernel(
    per="block",
    work="tiles",
    x="in f32",
    mean="in f32",
    rstd="in f32",
    scale="in f32",
    grad_out="in f32",
    residual="in f32",
    depth="in f32",
    grad_in="out f32",
    grad_branch="out f32",
    grad_scale="out f32",
    grad_shift="out f32",
    rows="i32",
    cols="i32",
    tiles="i32",
    with_residual="i32",
    after_relu="i32",
    with_branch="i32",
)
def layer_norm_grad(
    x: NDArray[np.float32],
    mean: NDArray[np.float32],
    rstd: NDArray[np.float32],
    scale: NDArray[np.float32],
    grad_out: NDArray[np.float32],
    residual: NDArray[np.float32],
    depth: NDArray[np.float32],
    grad_in: NDArray[np.float32],
    grad_branch: NDArray[np.float32],
    grad_scale: NDArray[np.float32],
    grad_shift: NDArray[np.float32],
    *,
    rows: int,
    cols: int,
    tiles: int,
    with_residual: int,
    after_relu: int,
    with_branch: int,
) -> None:
    """Write `grad_in` [rows, cols], `grad_scale` and `grad_shift` [cols], `grad_branch` if asked.

    `tiles` is `tile_count` of the sizes; `residual` is not read without `with_residual`, nor
    `depth` [1] without `with_branch`, and `grad_branch` not written.
    """
    if tiles != tile_count(rows, cols):
        raise ValueError(f"{tiles} tiles for [{rows}, {cols}]; give {tile_count(rows, cols)}")
    n = rows * cols
    with np.errstate(all="ignore"):
        of_x, grad_scale[:cols], grad_shift[:cols] = layer_norm_gradients(
            x[:n].reshape(rows, cols),
            mean[:rows],
            rstd[:rows],
            scale[:cols],
            grad_out[:n].reshape(rows, cols),
        )
        grad_in[:n] = of_x.reshape(-1)
        if with_residual:
            grad_in[:n] += residual[:n]
        if after_relu:
            grad_in[:n][~(x[:n] > 0)] = 0
    if with_branch:
        scaled_add_grad(grad_in, depth, grad_branch, n=n)
