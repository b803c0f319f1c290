"""Categorical return distributions: a head matrix of atoms, its softmax and its projection.

A head row is [(A + d) K] logits: K atoms for each action, then (dueling, d = 1) K for the state
value. The logits of action a are ``(value + adv[a]) - mean(adv)``, atom by atom, the mean summed
over the actions in turn (Wang et al. 2016, equation 9; Hessel et al. 2018, "Rainbow", section 3).
Atom k of the support stands at ``z_k = v_min + k dz``, ``dz = (v_max - v_min) / (K - 1)``
(Bellemare et al. 2017, section 4).

Everything is float64, through `detmath`, in the orders that each function states, so that
``categorical.cuh`` gives the same bits. A logit of NaN or +infinity, or none above -infinity, makes
the whole distribution NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.detmath import F64, exp64, log64
from onegraph.kernels.learner.warp_sum import warp_sum

#: Most atoms of a head: what ``c51_loss`` has shared memory for.
MAX_ATOMS = 256


def support(atoms: int, v_min: float, v_max: float) -> F64:
    """The atoms' places [K]; `atoms` is at least 2."""
    steps = np.arange(atoms, dtype=np.float64)
    places: F64 = float(v_min) + steps * atom_distance(atoms, v_min, v_max)
    return places


def atom_distance(atoms: int, v_min: float, v_max: float) -> float:
    """Distance of neighbouring atoms."""
    return (float(v_max) - float(v_min)) / (atoms - 1)


def action_logits(
    head: NDArray[np.floating[Any]], action: NDArray[np.int64], actions: int, dueling: int
) -> F64:
    """Logits [B, K] of one `action` (inside 0..A-1) in each row of `head` [B, A + d, K]."""
    atoms = head.astype(np.float64)
    taken: F64 = atoms[np.arange(len(atoms)), action]
    if not dueling:
        return taken
    total: F64 = atoms[:, 0]
    for j in range(1, actions):
        total = total + atoms[:, j]
    logits: F64 = (atoms[:, actions] + taken) - total / actions
    return logits


def softmax_parts(logits: F64) -> tuple[F64, F64, F64]:
    """``(x, e, total)`` of `logits` [..., K]: x = logits - max, e = exp(x), total = sum of e.

    The total [...] is summed as `warp_sum` does. Probabilities are e / total, their logarithms
    x - log(total).
    """
    x = logits - logits.max(axis=-1, keepdims=True)
    e = exp64(x)
    return x, e, warp_sum(e)


def expected_value(e: F64, total: F64, places: F64) -> F64:
    """Mean [...] of the distribution e / total over the atoms at `places` [K]."""
    value: F64 = warp_sum(e * places) / total
    return value


def project(
    probabilities: F64, reward: F64, discount: F64, atoms: int, v_min: float, v_max: float
) -> F64:
    """Distribution of ``reward + discount z`` [B, K] on the atoms (Bellemare et al. 2017, eq. 7).

    Atom k lands at ``b_k = (reward + discount v_min - v_min) / dz + discount k``, in units of dz
    from the first atom and clamped to the ends, and gives ``1 - |b_k - i|`` of its probability to
    each atom i nearer than one unit: all of it to an atom that it meets exactly. (The paper's
    Algorithm 1 loses that mass where b is an integer.) Sums run over k in turn. A row with a
    discount of 0 puts all its mass at the reward and does not read `probabilities`. A NaN reward
    makes a NaN row; an infinite one lands on the end of the support.

    Args:
        probabilities: [B, K].
        reward: [B].
        discount: [B].
        atoms: K.
        v_min: place of the first atom.
        v_max: place of the last.
    """
    low, distance = float(v_min), atom_distance(atoms, v_min, v_max)
    last = float(atoms - 1)
    start = ((reward + discount * low) - low) / distance
    places = np.arange(atoms)
    mass = np.zeros((len(reward), atoms))
    only = mass
    for k in range(atoms):
        b = start + discount * k
        b = np.where(b < 0.0, 0.0, np.where(b > last, last, b))
        near = 1.0 - np.abs(b[:, None] - places)
        near = np.where(near < 0.0, 0.0, near)
        if k == 0:
            only = near
        mass = mass + probabilities[:, k : k + 1] * near
    return np.where((discount != 0.0)[:, None], mass, only)


def weighted_log(mass: F64, logarithms: F64) -> F64:
    """``sum of mass log`` [...]; an atom without mass adds 0, whatever its logarithm."""
    return warp_sum(mass * np.where(mass == 0.0, 0.0, logarithms))


def negative_entropy(mass: F64) -> F64:
    """``sum of m log m`` [...] of distributions [..., K]."""
    return weighted_log(mass, log64(mass))
