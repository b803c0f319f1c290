"""Loss and gradient of the denoising auxiliary: the decoder's squared error on the clean state.

With S real features of the Sp columns, e the error decoded - clean of a feature, in float32::

    loss     = weight / S sum over the S features of e^2       of a row; the objective is its mean
    gradient = 2 weight e / (rows S)                           the slope of that mean

The mean is over batch and features, without a factor 1/2 (the reconstruction error of a denoising
autoencoder, Vincent et al. 2008, section 2.2). The squares are summed in float64, which holds each
exactly, in the order of `warp_sum`. Loss and gradient are rounded to float32 once. The columns of
the padding get gradient 0, whatever the decoder says there. A NaN in a row reaches its loss and its
column of the gradient; without features the loss is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.heads import F
from onegraph.kernels.learner.warp_sum import warp_sum


def denoise_terms(
    decoded: NDArray[F], clean: NDArray[F], weight: float | np.floating[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses [rows] and the gradient [rows, S] of their mean, before they are rounded.

    Args:
        decoded: [rows, S], without padding.
        clean: [rows, S].
        weight: of the loss.
    """
    rows, width = decoded.shape
    error = (decoded - clean).astype(np.float64)
    features = float(max(width, 1))
    loss = (float(weight) / features) * warp_sum(error * error)
    slope = (2.0 * float(weight)) / (float(max(rows, 1)) * features)
    return loss, slope * error


@kernel(
    per="warp",
    work="rows",
    decoded="in f32",
    clean="in f32",
    loss="out f32",
    grad="out f32",
    rows="i32",
    width="i32",
    padded="i32",
    weight="f64",
)
def denoise_loss(
    decoded: NDArray[np.float32],
    clean: NDArray[np.float32],
    loss: NDArray[np.float32],
    grad: NDArray[np.float32],
    *,
    rows: int,
    width: int,
    padded: int,
    weight: np.float64,
) -> None:
    """Write `loss` [rows] and `grad` [rows, Sp] from `decoded` and `clean` [rows, Sp]."""
    shape, size = (rows, padded), rows * padded
    out = grad[:size].reshape(shape)
    with np.errstate(all="ignore"):
        loss[:rows], out[:, :width] = denoise_terms(
            decoded[:size].reshape(shape)[:, :width],
            clean[:size].reshape(shape)[:, :width],
            weight,
        )
    out[:, width:] = 0.0
