"""Gradient of IQN's product of features and level embeddings (`iqn_mix`), through the ReLU too.

With dz [rows Q, H] the gradient in the product::

    grad_phi[r, j, h]    = dz[r, j, h] features[r, h]    where phi > 0, else 0
    grad_features[r, h]  = (what stands there +) sum over j = 0..Q-1, in turn, of dz relu(phi)

phi and ``grad_phi`` stand before the embedding's ReLU; a phi of NaN gives 0, as the ReLU gradient
of `gemm`. With `add` the sum is added to what ``grad_features`` holds: the features' gradient from
a plain head beside this one. Where `with_branch` is other than 0, ``grad_branch`` [rows, H] is what
`scaled_add_grad` makes of ``grad_features`` with the scale ``depth[0]``: the gradient in the branch
of the residual block whose output the features are. NaN and infinity reach what they enter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.iqn_mix import F, relu
from onegraph.kernels.learner.scaled_add_grad import scaled_add_grad


def mix_gradients(
    features: NDArray[F], phi: NDArray[F], grad_z: NDArray[F]
) -> tuple[NDArray[F], NDArray[F]]:
    """``(grad_phi [rows, Q, H], grad_features [rows, H])`` in the dtype of what is given.

    Args:
        features: [rows, H].
        phi: [rows, Q, H].
        grad_z: [rows, Q, H].
    """
    grad_phi = np.where(phi > 0, grad_z * features[:, None, :], features.dtype.type(0))
    total = np.zeros_like(features)
    for j in range(phi.shape[1]):
        total = total + grad_z[:, j] * relu(phi[:, j])
    return grad_phi, total


@kernel(
    work="rows*hidden",
    features="in f32",
    phi="in f32",
    grad_z="in f32",
    depth="in f32",
    grad_phi="out f32",
    grad_features="inout f32",
    grad_branch="out f32",
    rows="i32",
    quantiles="i32",
    hidden="i32",
    add="i32",
    with_branch="i32",
)
def iqn_mix_grad(
    features: NDArray[np.float32],
    phi: NDArray[np.float32],
    grad_z: NDArray[np.float32],
    depth: NDArray[np.float32],
    grad_phi: NDArray[np.float32],
    grad_features: NDArray[np.float32],
    grad_branch: NDArray[np.float32],
    *,
    rows: int,
    quantiles: int,
    hidden: int,
    add: int,
    with_branch: int,
) -> None:
    """Write `grad_phi` [rows Q, H], and write or add `grad_features` [rows, H].

    `depth` [1] is not read without `with_branch`, and `grad_branch` [rows, H] not written.
    """
    size = rows * quantiles * hidden
    shape = rows, quantiles, hidden
    with np.errstate(all="ignore"):
        d_phi, d_features = mix_gradients(
            features[: rows * hidden].reshape(rows, hidden),
            phi[:size].reshape(shape),
            grad_z[:size].reshape(shape),
        )
        grad_phi[:size] = d_phi.ravel()
        before = grad_features[: rows * hidden] if add else np.float32(0)
        grad_features[: rows * hidden] = before + d_features.ravel()
    if with_branch:
        scaled_add_grad(grad_features, depth, grad_branch, n=rows * hidden)
