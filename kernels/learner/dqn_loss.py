"""TD error, loss and output gradient of the DQN head, for plain and double, plain and dueling.

Sources: Mnih et al. 2015 (DQN); van Hasselt et al. 2016 (double DQN); Wang et al. 2016 (dueling).

Heads are [B, A + d], d = 1 when dueling (see `heads`)::

    a*       = argmax head_select when double, else argmax head_target
    target   = r_t + discount_t * q_target(a*)
    td       = target - q_tm1(a_tm1)
    loss     = w * 0.5 td^2                         MSE: with the factor 1/2, so its slope is td
             = w * 0.5 td^2                         Huber, |td| <= delta
             = w * delta (|td| - delta / 2)         Huber, beyond
    g        = -w * clip(td, -delta, delta) / B     MSE: -w td / B; the mean loss's slope in q(a)

``loss`` is per row; the objective is its mean, and ``g`` carries the 1/B. The gradient flows
through q_tm1(a) alone. A plain head gets g in the taken action's column, and **nothing else is
written**: zero ``grad_head`` first. A dueling head gets ``g (1[j = a] - 1/A)`` in column j and g in
column A, which is the whole row.

Defined outcomes: a discount of 0 drops the bootstrap term, so that a terminal row is right whatever
the networks say of its successor (even NaN). An action outside 0..A-1 makes q_taken, td, loss and
the row's gradient NaN (in the nearest action's column), so that the finite check skips the step
rather than learning from a corrupt row. Any other NaN reaches td, loss and the gradient.
`delta` must be positive; MSE ignores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.heads import F, action_value, greedy_action


@dataclass(frozen=True)
class DqnTerms(Generic[F]):
    """What a batch gives: each [B], and the gradient [B] of the mean loss in the taken q."""

    td: NDArray[F]
    loss: NDArray[F]
    q_taken: NDArray[F]
    grad_q: NDArray[F]


def dqn_terms(
    head_tm1: NDArray[F],
    head_select: NDArray[F],
    head_target: NDArray[F],
    action: NDArray[np.integer[Any]],
    reward: NDArray[F],
    discount: NDArray[F],
    weight: NDArray[F],
    *,
    actions: int,
    dueling: int,
    double_q: int,
    mse: int,
    delta: float | np.floating[Any],
) -> DqnTerms[F]:
    """TD errors, losses and slopes in the dtype of the heads [B, A + d]."""
    real = head_tm1.dtype.type
    limit = real(delta)
    best = greedy_action(head_select if double_q else head_target, actions)
    q_t = action_value(head_target, best, actions, dueling)
    target = np.where(discount != 0, reward + discount * q_t, reward)

    taken = np.clip(action, 0, actions - 1).astype(np.int64)
    q_tm1 = action_value(head_tm1, taken, actions, dueling)
    q_taken = np.where(taken == action, q_tm1, real(np.nan))

    td = target - q_taken
    size = np.abs(td)
    half_square = (real(0.5) * td) * td
    if mse:
        cost, slope = half_square, td
    else:
        cost = np.where(size <= limit, half_square, limit * (size - real(0.5) * limit))
        slope = np.where(td > limit, limit, np.where(td < -limit, -limit, td))
    grad_q = -(weight * slope) / real(max(len(td), 1))
    return DqnTerms(td, weight * cost, q_taken, grad_q)


def write_head_gradient(
    grad_head: NDArray[F],
    grad_q: NDArray[F],
    action: NDArray[np.integer[Any]],
    *,
    actions: int,
    dueling: int,
) -> None:
    """Spread the slope in the taken q [B] over the head's columns [B, A + d], in place."""
    real = grad_head.dtype.type
    taken = np.clip(action, 0, actions - 1)
    rows = np.arange(len(grad_q))
    if not dueling:
        grad_head[rows, taken] = grad_q
        return
    one_hot = np.zeros((len(grad_q), actions), grad_head.dtype)
    one_hot[rows, taken] = 1
    share = real(1) / real(actions)
    grad_head[:, :actions] = grad_q[:, None] * (one_hot - share)
    grad_head[:, actions] = grad_q


@kernel(
    work="n",
    sparse_reads={"grad_head": 0},
    head_tm1="in f32",
    head_select="in f32",
    head_target="in f32",
    action="in i32",
    reward="in f32",
    discount="in f32",
    weight="in f32",
    td="out f32",
    loss="out f32",
    q_taken="out f32",
    grad_head="inout f32",
    n="i32",
    actions="i32",
    dueling="i32",
    double_q="i32",
    mse="i32",
    delta="f32",
)
def dqn_loss(
    head_tm1: NDArray[np.float32],
    head_select: NDArray[np.float32],
    head_target: NDArray[np.float32],
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
    actions: int,
    dueling: int,
    double_q: int,
    mse: int,
    delta: np.float32,
) -> None:
    """Write each row's TD error, loss and taken value, and the head's gradient."""
    stride = actions + (1 if dueling else 0)
    with np.errstate(all="ignore"):
        terms = dqn_terms(
            head_tm1[: n * stride].reshape(n, stride),
            head_select[: n * stride].reshape(n, stride),
            head_target[: n * stride].reshape(n, stride),
            action[:n],
            reward[:n],
            discount[:n],
            weight[:n],
            actions=actions,
            dueling=dueling,
            double_q=double_q,
            mse=mse,
            delta=delta,
        )
        td[:n], loss[:n], q_taken[:n] = terms.td, terms.loss, terms.q_taken
        write_head_gradient(
            grad_head[: n * stride].reshape(n, stride),
            terms.grad_q,
            action[:n],
            actions=actions,
            dueling=dueling,
        )
