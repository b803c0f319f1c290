"""Gradients of the noisy layers' sigmas from those of their effective weights (see `noisy`).

``grad`` is laid out like the parameters. It holds the gradient of the effective weight and bias in
the places of mu, whose gradient that is, and gets ``grad * noise`` in the places of the sigmas. A
NaN or an infinity passes through to the sigma of the same element.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.noisy import layers_of, noise_of, sigma_gradient


@kernel(
    per="block",
    work="tiles",
    grad="inout f32",
    factors="in f32",
    table="in i64",
    layers="i32",
    tiles="i32",
)
def noisy_grad(
    grad: NDArray[np.float32],
    factors: NDArray[np.float32],
    table: NDArray[np.int64],
    *,
    layers: int,
    tiles: int,  # noqa: ARG001 - the launch shape
) -> None:
    """Write the sigmas' part of `grad`, with the `factors` that `noisy_weights` left."""
    for layer in layers_of(table, layers):
        noises = noise_of(*layer.split(factors))
        for (mu, sigma, shape), noise in zip(layer.places(), noises, strict=True):
            with np.errstate(all="ignore"):
                product = sigma_gradient(grad[mu].reshape(shape), noise)
            grad[sigma] = product.reshape(-1)
