"""A deterministic tabular environment: E lanes that walk one table of S states and A actions.

``table_next``, ``table_reward`` and ``table_flags`` are [S x A]: successor, reward, and whether the
transition terminates (`Flag.TERMINATED`; other bits are ignored). Observations are one-hot, zero
padded to Sp.

With `reset` other than 0 every lane begins a new episode and only ``obs`` and the lane arrays are
written. Otherwise each lane takes its action: ``obs_tm1`` is the observation acted on, ``obs_t``
the one arrived at, before any reset; ``reward``, ``flags`` and the episode's id (see `lanes`) go
with them. An episode that ended begins anew at once, so ``obs`` is what the next action is chosen
on. Episodes start in state `start`, or anywhere with equal chance when it is negative. `max_steps`
> 0 truncates; a transition that also terminates is a termination.

An action, state or successor out of range is taken as the nearest one, and the row is flagged
INVALID.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Flag
from onegraph.kernels.env.lanes import reset_draw


def _write_one_hot(out: NDArray[np.float32], column: NDArray[np.int64]) -> None:
    """Write one-hot rows [E, Sp]."""
    out[:] = column[:, None] == np.arange(out.shape[1])


@kernel(
    per="warp",
    work="lanes",
    block=128,
    table_next="in i32",
    table_reward="in f32",
    table_flags="in u8",
    action="in i32",
    lane_state="inout i32",
    lane_steps="inout i32",
    lane_episode="inout i64",
    obs="inout f32",
    obs_tm1="out f32",
    obs_t="out f32",
    reward="out f32",
    flags="out u8",
    episode="out i64",
    lanes="i32",
    states="i32",
    actions="i32",
    padded="i32",
    start="i32",
    max_steps="i32",
    seed="u64",
    reset="i32",
)
def env_tabular(
    table_next: NDArray[np.int32],
    table_reward: NDArray[np.float32],
    table_flags: NDArray[np.uint8],
    action: NDArray[np.int32],
    lane_state: NDArray[np.int32],
    lane_steps: NDArray[np.int32],
    lane_episode: NDArray[np.int64],
    obs: NDArray[np.float32],
    obs_tm1: NDArray[np.float32],
    obs_t: NDArray[np.float32],
    reward: NDArray[np.float32],
    flags: NDArray[np.uint8],
    episode: NDArray[np.int64],
    *,
    lanes: int,
    states: int,
    actions: int,
    padded: int,
    start: int,
    max_steps: int,
    seed: int,
    reset: int,
) -> None:
    """Take one step in every lane, or begin a new episode in each."""
    observed = obs[: lanes * padded].reshape(lanes, padded)  # [E, Sp]
    state = lane_state[:lanes].astype(np.int64)
    steps, begun = lane_steps[:lanes], lane_episode[:lanes]
    if reset:
        restart = np.ones(lanes, np.bool_)
    else:
        a = np.clip(action[:lanes], 0, actions - 1).astype(np.int64)
        origin = np.clip(state, 0, states - 1)
        cell = origin * actions + a
        listed = table_next[cell]
        following = np.clip(listed, 0, states - 1).astype(np.int64)
        invalid = (a != action[:lanes]) | (origin != state) | (following != listed)
        steps += 1
        terminated = (table_flags[cell] & Flag.TERMINATED) != 0
        truncated = ~terminated & (max_steps > 0) & (steps >= max_steps)
        obs_tm1[: lanes * padded].reshape(lanes, padded)[:] = observed
        _write_one_hot(obs_t[: lanes * padded].reshape(lanes, padded), following)
        reward[:lanes] = table_reward[cell]
        flags[:lanes] = (
            invalid * Flag.INVALID.value
            + terminated * Flag.TERMINATED.value
            + truncated * Flag.TRUNCATED.value
        )
        episode[:lanes] = np.arange(lanes) + lanes * (begun - 1)
        state = following
        restart = terminated | truncated
    if restart.any():
        first = np.full(lanes, min(max(start, 0), states - 1), np.int64)
        if start < 0:
            first = reset_draw(seed, begun, states)
        state = np.where(restart, first, state)
        steps[restart] = 0
        begun[restart] += 1
    _write_one_hot(observed, state)
    lane_state[:lanes] = state
