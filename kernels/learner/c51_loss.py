"""Cross entropy, its priority and the output gradient of the categorical head (C51).

Source: Bellemare et al. 2017, "A distributional perspective on reinforcement learning", section 4.
Heads are [B, (A + d) K] logits (see `categorical`); ``head_select`` [B, A] holds action values.
With p = softmax of the online logits of a_tm1, and m the projection on the atoms of
``r_t + discount_t z`` under the target's distribution of a*, the greedy action of ``head_select``::

    loss     = w * CE,   CE = -sum of m log p
    td       = CE - H(m) = KL(m || p)                 >= 0
    q_taken  = sum of p z
    g        = w (p - m) / B                          the mean loss's slope in the logits of a_tm1

``td`` is the Kullback-Leibler divergence, Rainbow's priority (Hessel et al. 2018, section 3): it is
what the loss can still lose, whereas the difference of the two means is 0 for distributions that
agree in nothing but their mean, and the cross entropy stays above 0 where they agree. It is in nats
and has no sign. Loss and td are 0, not NaN, on atoms without mass.

``loss`` is per row; the objective is its mean, and ``g`` carries the 1/B. ``grad_head`` is written
whole: a plain head gets g in the taken action's atoms and zero in the others, a dueling one
``g (1[c = a] - 1/A)`` in action c's atoms and g in the state value's. Float64, rounded once; sums
over the atoms in the orders of `warp_sum` and of `categorical.project`.

Defined outcomes: a discount of 0 drops the bootstrap term, so that a terminal row is right whatever
the networks say of its successor (even NaN). An action outside 0..A-1, a NaN reward, or logits
whose softmax is NaN make td, loss and the row's gradients NaN (in the nearest action's atoms), so
that the finite check skips the step; a bad action or online softmax makes q_taken NaN too. An
infinite reward lands on the end of the support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import F64, log64
from onegraph.kernels.learner.categorical import (
    MAX_ATOMS,
    action_logits,
    expected_value,
    negative_entropy,
    project,
    softmax_parts,
    support,
    weighted_log,
)
from onegraph.kernels.learner.heads import greedy_action


@dataclass(frozen=True)
class CategoricalTerms:
    """What a batch gives, float64: each [B], and the mean loss's gradient in the logits [B, K]."""

    td: F64
    loss: F64
    q_taken: F64
    grad_logits: F64


def categorical_terms(
    head_tm1: NDArray[np.floating[Any]],
    head_target: NDArray[np.floating[Any]],
    head_select: NDArray[np.floating[Any]],
    action: NDArray[np.integer[Any]],
    reward: NDArray[np.floating[Any]],
    discount: NDArray[np.floating[Any]],
    weight: NDArray[np.floating[Any]],
    *,
    actions: int,
    dueling: int,
    v_min: float,
    v_max: float,
) -> CategoricalTerms:
    """The terms from heads [B, A + d, K] and select [B, A]; nothing is rounded to float32."""
    batch, _, atoms = head_tm1.shape
    best = greedy_action(head_select, actions)
    _, e_t, total_t = softmax_parts(action_logits(head_target, best, actions, dueling))
    m = project(
        e_t / total_t[:, None],
        reward.astype(np.float64),
        discount.astype(np.float64),
        atoms,
        v_min,
        v_max,
    )

    taken = np.clip(action, 0, actions - 1).astype(np.int64)
    logits = action_logits(head_tm1, taken, actions, dueling)
    logits = np.where((taken == action)[:, None], logits, np.nan)
    x, e, total = softmax_parts(logits)
    log_likelihood = weighted_log(m, x - log64(total)[:, None])
    divergence = negative_entropy(m) - log_likelihood
    w = weight.astype(np.float64)
    return CategoricalTerms(
        td=np.where(divergence < 0.0, 0.0, divergence),
        loss=w * -log_likelihood,
        q_taken=expected_value(e, total, support(atoms, v_min, v_max)),
        grad_logits=(w[:, None] * (e / total[:, None] - m)) / max(batch, 1),
    )


def spread_logit_gradient(
    grad_logits: F64, action: NDArray[np.integer[Any]], *, actions: int, dueling: int
) -> F64:
    """The head's gradient [B, A + d, K] from that of the taken action's logits [B, K]."""
    taken = np.clip(action, 0, actions - 1)
    one_hot = (taken[:, None] == np.arange(actions))[:, :, None]
    g = grad_logits[:, None, :]
    if not dueling:
        return np.where(one_hot, g, 0.0)
    return np.concatenate([g * (one_hot - 1.0 / actions), g], axis=1)


@kernel(
    per="warp",
    work="n",
    block=64,
    head_tm1="in f32",
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
    actions="i32",
    dueling="i32",
    atoms="i32",
    v_min="f64",
    v_max="f64",
)
def c51_loss(
    head_tm1: NDArray[np.float32],
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
    actions: int,
    dueling: int,
    atoms: int,
    v_min: float,
    v_max: float,
) -> None:
    """Write each row's KL, loss and value [B], and the head's gradient; K is 2..`MAX_ATOMS`."""
    if not 2 <= atoms <= MAX_ATOMS:
        raise ValueError(f"{atoms} atoms; a head has 2 to {MAX_ATOMS}")
    shape = n, actions + (1 if dueling else 0), atoms
    size = n * shape[1] * atoms
    with np.errstate(all="ignore"):
        terms = categorical_terms(
            head_tm1[:size].reshape(shape),
            head_target[:size].reshape(shape),
            head_select[: n * actions].reshape(n, actions),
            action[:n],
            reward[:n],
            discount[:n],
            weight[:n],
            actions=actions,
            dueling=dueling,
            v_min=v_min,
            v_max=v_max,
        )
        td[:n], loss[:n], q_taken[:n] = terms.td, terms.loss, terms.q_taken
        grad = spread_logit_gradient(
            terms.grad_logits, action[:n], actions=actions, dueling=dueling
        )
        grad_head[:size] = grad.ravel()
