"""Layer normalisation with scale and shift (Ba, Kiros & Hinton 2016, equation 4).

For each row of x [rows, cols]::

    mean = sum(x) / cols
    rstd = 1 / sqrt(sum((x - mean)^2) / cols + eps)
    out  = ((x - mean) rstd) scale + shift

float32 throughout, each sum as `row_sums.warp_sum` has it; the variance is taken about the mean
(two passes), so that it can't be negative. `mean` and `rstd` [rows] are kept for the gradient. A
NaN, an infinity, or numbers so large that a sum overflows make their row of `out` NaN and leave the
others alone. `eps` must be positive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.row_sums import F, warp_sum


def normalised(
    x: NDArray[F], scale: NDArray[F], shift: NDArray[F], eps: float | np.floating[Any]
) -> tuple[NDArray[F], NDArray[F], NDArray[F]]:
    """``out`` [rows, cols], ``mean`` and ``rstd`` [rows], in the dtype of `x` [rows, cols]."""
    real = x.dtype.type
    cols = real(x.shape[1])
    mean = warp_sum(x) / cols
    centred = x - mean[:, None]
    variance = warp_sum(centred * centred) / cols
    rstd = real(1) / np.sqrt(variance + real(eps))
    out: NDArray[F] = (centred * rstd[:, None]) * scale + shift
    return out, mean, rstd


@kernel(
    per="warp",
    work="rows",
    block=128,
    x="in f32",
    scale="in f32",
    shift="in f32",
    out="out f32",
    mean="out f32",
    rstd="out f32",
    rows="i32",
    cols="i32",
    eps="f32",
)
def layer_norm(
    x: NDArray[np.float32],
    scale: NDArray[np.float32],
    shift: NDArray[np.float32],
    out: NDArray[np.float32],
    mean: NDArray[np.float32],
    rstd: NDArray[np.float32],
    *,
    rows: int,
    cols: int,
    eps: np.float32,
) -> None:
    """Write `out` [rows, cols], `mean` and `rstd` [rows]."""
    with np.errstate(all="ignore"):
        result, mean[:rows], rstd[:rows] = normalised(
            x[: rows * cols].reshape(rows, cols), scale[:cols], shift[:cols], eps
        )
    out[: rows * cols] = result.reshape(-1)
