"""Features times level embeddings, the input of IQN's head (Dabney et al. 2018, equation 3).

``z[r, j, h] = features[r, h] phi[r, j, h]``; features [rows, H], phi and z [rows Q, H], float32.
NaN and infinity as IEEE multiplication has them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel


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
        product = phi[:size].reshape(rows, quantiles, hidden) * features[: rows * hidden].reshape(
            rows, 1, hidden
        )
        z[:size] = product.ravel()
