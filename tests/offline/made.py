"""Transitions written by hand, as the tests of offline learning share them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The chain of five states: where left (0) and right (1) lead, and what they pay.
NEXT = [[max(s - 1, 0), min(s + 1, 4)] for s in range(5)]
LEFT_THEN_RIGHT = [0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1]


def chain_columns(episodes: int = 12) -> dict[str, NDArray[Any]]:
    """Walks of the chain: those of a policy that goes left in some places, to the right end."""
    rows: list[tuple[int, int, float, int, bool, int]] = []
    for episode in range(episodes):
        moves = LEFT_THEN_RIGHT[episode % 7 :] + [1] * 5
        state = 0
        for action in moves:
            ended = state == 4 and action == 1
            after = NEXT[state][action]
            rows.append((state, action, float(ended), after, ended, episode))
            state = after
            if ended:
                break
    state, action, reward, after, ended, episode = (np.array(c) for c in zip(*rows, strict=True))
    one_hot = np.eye(5, dtype=np.float32)
    return {
        "state": one_hot[state],
        "action": action.astype(np.int64),
        "reward": reward.astype(np.float32),
        "next_state": one_hot[after],
        "terminated": ended.astype(bool),
        "truncated": np.zeros(len(rows), bool),
        "episode": episode.astype(np.int64),
    }


def tiny_columns(rows: int = 4, **changes: Any) -> dict[str, NDArray[Any]]:
    """Rows that lead from state i to state i + 1; a column that is ``None`` is left out."""
    columns: dict[str, Any] = {
        "state": np.arange(rows, dtype=np.float32)[:, None] * [1.0, 10.0],
        "action": np.arange(rows) % 2,
        "reward": np.ones(rows, np.float32),
        "next_state": np.arange(1, rows + 1, dtype=np.float32)[:, None] * [1.0, 10.0],
        "terminated": np.zeros(rows, bool),
        **changes,
    }
    return {name: values for name, values in columns.items() if values is not None}
