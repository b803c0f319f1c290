"""Epsilon-greedy actions of E lanes (Sutton & Barto 2018, section 2.2).

Two uniforms a lane from Philox, keyed by the seed, at counter (lane, ``counters[COLLECT]``, ACT):
below ``schedule[EPSILON]`` the first asks for a uniformly random action, ``floor(u1 A)``; else the
action is the greedy one of the lane's head row (the first of the largest among columns 0..A-1, NaN
as -inf). `greedy` other than 0 never explores; so does an epsilon of 0 or NaN. `stride` is the
head's width, A + d.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, Schedule, StreamTag
from onegraph.kernels.common.philox import philox_uniform
from onegraph.kernels.learner.heads import greedy_action


@kernel(
    work="n",
    head="in f32",
    action="out i32",
    counters="in i64",
    schedule="in f64",
    n="i32",
    actions="i32",
    stride="i32",
    seed="u64",
    greedy="i32",
)
def act(
    head: NDArray[np.float32],
    action: NDArray[np.int32],
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    *,
    n: int,
    actions: int,
    stride: int,
    seed: int,
    greedy: int,
) -> None:
    """Write each lane's action [E], chosen from `head` [E, A + d]."""
    best = greedy_action(head[: n * stride].reshape(n, stride), actions)
    if greedy:
        action[:n] = best
        return
    draws = philox_uniform(seed, np.arange(n), counters[Counter.COLLECT], StreamTag.ACT)
    random = np.minimum((draws[:, 1] * actions).astype(np.int64), actions - 1)
    action[:n] = np.where(draws[:, 0] < schedule[Schedule.EPSILON], random, best)
