"""Features times level embeddings, the input of IQN's head (Dabney et al. 2018, equation 3).

``z[r, j, h] = features[r, h] relu(phi[r, j, h])``; features [rows, H], phi and z [rows Q, H],
float32. The embedding's ReLU stands here, and not behind the product of matrices that gives phi, so
that no node passes over [rows Q, H] for it alone. As in `relu_epilogue`, it leaves a NaN and -0.0.
NaN and infinity as IEEE multiplication has them.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel

F = TypeVar("F", bound=np.floating[Any])


def relu(phi: NDArray[F]) -> NDArray[F]:
    """`phi` with zero where it is below zero; a NaN stays."""
    return np.where(phi < 0, phi.dtype.type(0), phi)


@kernel(
    work="rows*hidden",
    features="in f32",
    phi="in f32",
    z="out f32",
    rows="i32",
    quantiles="i32",
    hidden="i32",
)
def iqn_mix(
    features: NDArray[np.float32],
    phi: NDArray[np.float32],
    z: NDArray[np.float32],
    *,
    rows: int,
    quantiles: int,
    hidden: int,
) -> None:
    """Write the products `z` [rows Q, H]."""
    size = rows * quantiles * hidden
    with np.errstate(all="ignore"):
        product = relu(phi[:size].reshape(rows, quantiles, hidden)) * features[
            : rows * hidden
        ].reshape(rows, 1, hidden)
        z[:size] = product.ravel()
