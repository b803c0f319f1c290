"""A full replay of random transitions: what a step is timed over when no environment filled one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import COUNTERS, Flag
from onegraph.kernels.common.layout import Counter as Slot
from onegraph.kernels.replay import tree
from onegraph.trainer.shapes import Shapes

#: The share of the replay's rows at which an episode ends.
EPISODE_ENDS = 0.01


def random_replay(shapes: Shapes) -> dict[str, NDArray[Any]]:
    """The full replay by buffer name: transitions and priorities drawn by the config's seed.

    States are standard normal in their real columns, rewards standard normal, priorities uniform.
    """
    rng = np.random.default_rng(shapes.config.seed)
    n, width = shapes.capacity, shapes.width

    def states() -> NDArray[np.float32]:
        rows = np.zeros((n, shapes.padded), np.float32)
        rows[:, :width] = rng.standard_normal((n, width), np.float32)
        return rows

    leaves = rng.random(n, np.float32) + np.float32(0.01)
    nodes = np.zeros(shapes.nodes)
    tree.rebuild(leaves, nodes)
    counters = np.zeros(COUNTERS, np.int64)
    counters[Slot.FILLED] = n
    ends = rng.random(n, np.float32) < EPISODE_ENDS
    return {
        "replay_state": states(),
        "replay_next_state": states(),
        "replay_action": rng.integers(0, shapes.network.actions, n).astype(np.int32),
        "replay_reward": rng.standard_normal(n, np.float32),
        "replay_flags": np.where(ends, np.uint8(Flag.TERMINATED), np.uint8(0)),
        "replay_generation": np.ones(n, np.uint32),
        "replay_leaves": leaves,
        "replay_nodes": nodes,
        "replay_max_leaf": leaves.max(keepdims=True),
        "counters": counters,
    }
