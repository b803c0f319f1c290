"""Transitions as the replay holds them: written at once, as so many inserts would have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import COUNTERS, DIAGNOSTICS
from onegraph.kernels.replay import tree
from onegraph.kernels.replay.insert_rows import insert_rows
from onegraph.trainer.offline.transitions import Transitions


def ring_state(transitions: Transitions, padded: int) -> dict[str, NDArray[Any]]:
    """The replay's buffers by name, full of `transitions` in their order, one lane.

    The write head is back at row 0, so a return that reaches the last row ends there. Every leaf is
    1, the first priority of an empty replay; that of a row which is not finite is 0, and the row is
    counted in `diagnostics`.

    Args:
        transitions: with their ends marked (`with_ends`).
        padded: floats of a stored state, Sp.
    """
    n = transitions.rows
    episode = transitions.episode
    assert episode is not None, "with_ends comes first"
    wide = [np.zeros((n, padded), np.float32) for _ in range(4)]
    obs, next_obs, state, next_state = wide
    obs[:, : transitions.width] = transitions.state
    next_obs[:, : transitions.width] = transitions.next_state
    ring: dict[str, NDArray[Any]] = {
        "replay_state": state,
        "replay_action": np.zeros(n, np.int32),
        "replay_reward": np.zeros(n, np.float32),
        "replay_flags": np.zeros(n, np.uint8),
        "replay_next_state": next_state,
        "replay_episode": np.zeros(n, np.int64),
        "replay_generation": np.zeros(n, np.uint32),
        "replay_leaves": np.zeros(n, np.float32),
        "diagnostics": np.zeros(DIAGNOSTICS, np.int64),
    }
    insert_rows(  # one slot of n lanes is, row for row, n slots of one lane
        obs=obs.reshape(-1),
        action=transitions.action,
        reward=transitions.reward,
        step_flags=transitions.flags,
        next_obs=next_obs.reshape(-1),
        episode=episode,
        counters=np.zeros(COUNTERS, np.int64),
        max_leaf=np.ones(1, np.float32),
        state=state.reshape(-1),
        ring_action=ring["replay_action"],
        ring_reward=ring["replay_reward"],
        ring_flags=ring["replay_flags"],
        next_state=next_state.reshape(-1),
        ring_episode=ring["replay_episode"],
        generation=ring["replay_generation"],
        leaves=ring["replay_leaves"],
        diagnostics=ring["diagnostics"],
        lanes=n,
        padded=padded,
        slots=1,
    )
    nodes = np.zeros(tree.node_count(n))
    tree.rebuild(ring["replay_leaves"], nodes)
    return {**ring, "replay_nodes": nodes}
