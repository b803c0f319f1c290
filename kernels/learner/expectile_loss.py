"""Expectile regression of the two value networks on the target network's Q (Kostrikov et al. 2022).

"Offline reinforcement learning with implicit Q-learning", equation 5, for each of V_hi and
V_lo with its own expectile, weighted by the batch's importance weights::

    u    = Q(s, a) - V(s)
    side = |expectile - 1(u < 0)|          expectile where u >= 0, 1 - expectile where u < 0
    loss = w side u^2                      of a row, without a factor 1/2; the objective is its mean
    g    = -2 w side u / B                 the slope of that mean in V(s); 0 at u = 0

Q is read at the taken action from the target network's head [B, A + d] (see `heads`), and is a
constant of the regression; it is written to ``q`` too, for `iql_modulate`. Every value is float32.

An action outside 0..A-1 makes the row's q, losses and gradients NaN, so that the finite check skips
the step. Any other NaN reaches what is computed from it. NaN is not below 0: `side` is then the
expectile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.heads import F, action_value


@dataclass(frozen=True)
class ExpectileTerms(Generic[F]):
    """Losses [B], and the gradient [B] of their mean in V(s)."""

    loss: NDArray[F]
    grad: NDArray[F]


def taken_value(
    head: NDArray[F], action: NDArray[np.integer[Any]], *, actions: int, dueling: int
) -> NDArray[F]:
    """Q(s, a) [B] of the taken actions; NaN where there is no such action."""
    inside = np.clip(action, 0, actions - 1).astype(np.int64)
    value = action_value(head, inside, actions, dueling)
    return np.where(inside == action, value, head.dtype.type(np.nan))


def expectile_terms(
    q: NDArray[F], value: NDArray[F], weight: NDArray[F], expectile: float | np.floating[Any]
) -> ExpectileTerms[F]:
    """Loss and slope of V(s) `value` [B] towards the expectile of `q` [B], in their dtype."""
    real = q.dtype.type
    u = q - value
    side = np.abs(real(expectile) - (u < 0).astype(q.dtype))
    pull = side * u
    loss = weight * (pull * u)
    grad = -(weight * (real(2.0) * pull)) / real(max(len(u), 1))
    return ExpectileTerms(loss, grad)


@kernel(
    work="rows",
    head="in f32",
    action="in i32",
    weight="in f32",
    v_hi="in f32",
    v_lo="in f32",
    q="out f32",
    loss_hi="out f32",
    loss_lo="out f32",
    grad_hi="out f32",
    grad_lo="out f32",
    rows="i32",
    actions="i32",
    dueling="i32",
    high="f32",
    low="f32",
)
def expectile_loss(
    head: NDArray[np.float32],
    action: NDArray[np.int32],
    weight: NDArray[np.float32],
    v_hi: NDArray[np.float32],
    v_lo: NDArray[np.float32],
    q: NDArray[np.float32],
    loss_hi: NDArray[np.float32],
    loss_lo: NDArray[np.float32],
    grad_hi: NDArray[np.float32],
    grad_lo: NDArray[np.float32],
    *,
    rows: int,
    actions: int,
    dueling: int,
    high: np.float32,
    low: np.float32,
) -> None:
    """Write Q(s, a), both networks' losses and the gradients of their outputs, each [rows]."""
    stride = actions + (1 if dueling else 0)
    with np.errstate(all="ignore"):
        taken = taken_value(
            head[: rows * stride].reshape(rows, stride),
            action[:rows],
            actions=actions,
            dueling=dueling,
        )
        q[:rows] = taken
        for value, loss, grad, expectile in (
            (v_hi, loss_hi, grad_hi, high),
            (v_lo, loss_lo, grad_lo, low),
        ):
            terms = expectile_terms(taken, value[:rows], weight[:rows], expectile)
            loss[:rows], grad[:rows] = terms.loss, terms.grad
