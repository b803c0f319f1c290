"""TD error, quantile Huber loss and output gradient of the IQN head.

Source: Dabney et al. 2018, "Implicit quantile networks for distributional reinforcement learning".
Heads are [B Q, A + d] (online) and [B Q', A + d] (target), a row for each sampled level, d = 1 when
dueling (see `heads`). With theta_i = q_tau_i(a_tm1) and a* the greedy action of ``head_select``
[B, A + d], which holds action values or a dueling pair::

    T_j      = r_t + discount_t * theta'_j(a*)                                 j = 0..Q'-1
    delta_ij = T_j - theta_i
    side_ij  = |tau_i - 1[delta_ij < 0]|
    rho_ij   = side_ij huber(delta_ij) / kappa                                 equation 2
    loss     = w * sum over i of (mean over j of rho_ij)                       equation 3
    td       = mean T_j - mean theta_i
    q_taken  = mean theta_i
    g_i      = -w / (B Q') * sum over j of side_ij clip(delta_ij, -kappa, kappa) / kappa

``huber`` is 0.5 delta^2 up to kappa and kappa (|delta| - kappa / 2) beyond. ``loss`` is per row;
the objective is its mean over the batch, and ``g`` carries the 1/B. ``grad_head`` [B Q, A + d] is
written whole: a plain head gets g_i in the taken action's column and zero in the others, a dueling
one ``g_i (1[c = a] - 1/A)`` in column c and g_i in column A.

Order, float32: sums over j in turn; sums over i, and the mean of the targets, in the order of
`warp_sum`.

Defined outcomes: a discount of 0 drops the bootstrap term, so that a terminal row is right whatever
the networks say of its successor (even NaN). An action outside 0..A-1 makes td, loss, q_taken and
the row's gradients NaN (in the nearest action's column), so that the finite check skips the step.
Any other NaN reaches td, loss and the gradients it enters; an infinite target gives an infinite td
and loss, and finite gradients, as the Huber slope is bounded. Q, Q' and kappa must be positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.dqn_loss import write_head_gradient
from onegraph.kernels.learner.heads import F, action_value, greedy_action
from onegraph.kernels.learner.warp_sum import warp_sum


@dataclass(frozen=True)
class QuantileTerms(Generic[F]):
    """What a batch gives: each [B], and the gradient [B, Q] of the mean loss in each theta_i."""

    td: NDArray[F]
    loss: NDArray[F]
    q_taken: NDArray[F]
    grad_theta: NDArray[F]


def quantile_huber_terms(
    theta: NDArray[F],
    tau: NDArray[F],
    targets: NDArray[F],
    weight: NDArray[F],
    kappa: float | np.floating[Any],
) -> QuantileTerms[F]:
    """Losses and slopes in the dtype of `theta`.

    Args:
        theta: online quantiles of the taken action [B, Q].
        tau: their levels [B, Q].
        targets: [B, Q'].
        weight: importance weights [B].
        kappa: where the Huber loss turns linear.
    """
    real = theta.dtype.type
    limit = real(kappa)
    batch, samples = len(theta), real(targets.shape[1])
    cost, slope = np.zeros_like(theta), np.zeros_like(theta)
    for j in range(targets.shape[1]):
        delta = targets[:, j : j + 1] - theta
        side = np.where(delta < 0, real(1) - tau, tau)
        size = np.abs(delta)
        huber = np.where(
            size <= limit, (real(0.5) * delta) * delta, limit * (size - real(0.5) * limit)
        )
        cost = cost + side * huber
        slope = slope + side * np.where(
            delta > limit, limit, np.where(delta < -limit, -limit, delta)
        )
    q_taken = warp_sum(theta) / real(theta.shape[1])
    return QuantileTerms(
        td=warp_sum(targets) / samples - q_taken,
        loss=weight * (warp_sum(cost / limit) / samples),
        q_taken=q_taken,
        grad_theta=-(weight[:, None] * (slope / limit)) / (samples * real(max(batch, 1))),
    )


def iqn_terms(
    head_tm1: NDArray[F],
    tau: NDArray[F],
    head_target: NDArray[F],
    head_select: NDArray[F],
    action: NDArray[np.integer[Any]],
    reward: NDArray[F],
    discount: NDArray[F],
    weight: NDArray[F],
    *,
    actions: int,
    dueling: int,
    kappa: float | np.floating[Any],
) -> QuantileTerms[F]:
    """The terms from heads [B, Q, A + d] and [B, Q', A + d], and levels [B, Q]."""
    batch, quantiles, stride = head_tm1.shape
    samples = head_target.shape[1]

    def taken_quantiles(head: NDArray[F], chosen: NDArray[np.int64], per_row: int) -> NDArray[F]:
        flat = head.reshape(batch * per_row, stride)
        values = action_value(flat, np.repeat(chosen, per_row), actions, dueling)
        return values.reshape(batch, per_row)

    best = greedy_action(head_select, actions)
    theta_t = taken_quantiles(head_target, best, samples)
    bootstrap = np.where(
        discount[:, None] != 0, discount[:, None] * theta_t, head_tm1.dtype.type(0)
    )
    targets = reward[:, None] + bootstrap

    taken = np.clip(action, 0, actions - 1).astype(np.int64)
    theta = taken_quantiles(head_tm1, taken, quantiles)
    theta = np.where((taken == action)[:, None], theta, head_tm1.dtype.type(np.nan))
    return quantile_huber_terms(theta, tau, targets, weight, kappa)


@kernel(
    per="warp",
    work="n",
    block=64,
    head_tm1="in f32",
    tau="in f32",
    head_target="in f32",
    head_select="in f32",
    action="in i32",
    reward="in f32",
    discount="in f32",
    weight="in f32",
    td="out f32",
    loss="out f32",
    q_taken="out f32",
    grad_head="out f32",
    n="i32",
    quantiles="i32",
    target_quantiles="i32",
    actions="i32",
    dueling="i32",
    kappa="f32",
)
def iqn_loss(
    head_tm1: NDArray[np.float32],
    tau: NDArray[np.float32],
    head_target: NDArray[np.float32],
    head_select: NDArray[np.float32],
    action: NDArray[np.int32],
    reward: NDArray[np.float32],
    discount: NDArray[np.float32],
    weight: NDArray[np.float32],
    td: NDArray[np.float32],
    loss: NDArray[np.float32],
    q_taken: NDArray[np.float32],
    grad_head: NDArray[np.float32],
    *,
    n: int,
    quantiles: int,
    target_quantiles: int,
    actions: int,
    dueling: int,
    kappa: np.float32,
) -> None:
    """Write each row's TD error, loss and taken value [B], and the head's gradient."""
    stride = actions + (1 if dueling else 0)
    size, size_target = n * quantiles * stride, n * target_quantiles * stride
    with np.errstate(all="ignore"):
        terms = iqn_terms(
            head_tm1[:size].reshape(n, quantiles, stride),
            tau[: n * quantiles].reshape(n, quantiles),
            head_target[:size_target].reshape(n, target_quantiles, stride),
            head_select[: n * stride].reshape(n, stride),
            action[:n],
            reward[:n],
            discount[:n],
            weight[:n],
            actions=actions,
            dueling=dueling,
            kappa=kappa,
        )
        td[:n], loss[:n], q_taken[:n] = terms.td, terms.loss, terms.q_taken
        grad = np.zeros((n * quantiles, stride), grad_head.dtype)
        write_head_gradient(
            grad,
            terms.grad_theta.ravel(),
            np.repeat(action[:n], quantiles),
            actions=actions,
            dueling=dueling,
        )
        grad_head[:size] = grad.ravel()
