"""The gradients of the selectivity gate and of its L1 penalty.

With g the gradient in the gate's output, s = sigmoid(logit) and the penalty ``l1 * sum_j s_j`` on
the mean loss (gates are positive, so that their L1 norm is their sum; Tibshirani 1996)::

    grad_logit[j]  = s_j (1 - s_j) (sum over r of g[r, j] x[r, j]  +  l1)     j < width
    grad_in[r, j]  = s_j g[r, j]                                              j < width

and 0 in the padding, width <= j < cols, so that nothing is learnt there. `grad_in` is written only
where `with_grad_in` is other than 0. The sum is `row_sums.sum_over_rows`, in float32; the
sigmoid's slope is computed in float64 and rounded once. NaN and infinity stay in their columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.row_sums import F, sum_over_rows
from onegraph.kernels.learner.sigmoid import sigmoid64


def gate_gradients(
    x: NDArray[F], logit: NDArray[F], grad_out: NDArray[F], l1: float | np.floating[Any]
) -> tuple[NDArray[F], NDArray[F]]:
    """Gradients in `logit` [n] and in `x` [rows, n], in the dtype of `x`."""
    gate, slope = (v.astype(x.dtype) for v in sigmoid64(logit))
    grad_logit: NDArray[F] = slope * (sum_over_rows(grad_out * x) + x.dtype.type(l1))
    grad_in: NDArray[F] = gate * grad_out
    return grad_logit, grad_in


# 256 threads are 8 warps: per="warp" gives each block the 8 columns that it adds.
@kernel(
    per="warp",
    work="cols",
    x="in f32",
    logit="in f32",
    grad_out="in f32",
    grad_logit="out f32",
    grad_in="out f32",
    rows="i32",
    cols="i32",
    width="i32",
    l1="f32",
    with_grad_in="i32",
)
def gate_backward(
    x: NDArray[np.float32],
    logit: NDArray[np.float32],
    grad_out: NDArray[np.float32],
    grad_logit: NDArray[np.float32],
    grad_in: NDArray[np.float32],
    *,
    rows: int,
    cols: int,
    width: int,
    l1: np.float32,
    with_grad_in: int,
) -> None:
    """Write `grad_logit` [cols] and, if asked, `grad_in` [rows, cols]."""
    n = rows * cols
    with np.errstate(all="ignore"):
        of_logit, of_x = gate_gradients(
            x[:n].reshape(rows, cols)[:, :width],
            logit[:width],
            grad_out[:n].reshape(rows, cols)[:, :width],
            l1,
        )
    grad_logit[:width], grad_logit[width:cols] = of_logit, 0
    if with_grad_in:
        result = grad_in[:n].reshape(rows, cols)
        result[:, :width], result[:, width:] = of_x, 0
