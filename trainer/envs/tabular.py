"""Small deterministic environments given by a table, with one-hot observations.

They are the trainer's proofs: their action values are known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import Flag
from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.envs.base import TRAINING_LANES, LaneNames, common_buffers


@dataclass(frozen=True)
class TabularEnvironment:
    """A table of S states and A actions.

    Attributes:
        next_state: [S, A] i32.
        reward: [S, A] f32.
        terminated: [S, A] bool.
        start: first state of an episode; -1 draws it uniformly.
        max_steps: truncates an episode; 0 never does.
    """

    next_state: NDArray[np.int32] = field(repr=False)
    reward: NDArray[np.float32] = field(repr=False)
    terminated: NDArray[np.bool_] = field(repr=False)
    start: int
    max_steps: int
    lanes: int
    seed: int
    names: LaneNames = TRAINING_LANES

    @property
    def observation_width(self) -> int:
        return len(self.next_state)

    @property
    def actions(self) -> int:
        return int(self.next_state.shape[1])

    @property
    def goal(self) -> None:
        """A state of a table holds no goal."""
        return

    def buffers(self) -> tuple[Buffer, ...]:
        """Lanes and tables."""
        p, e, table = self.names.prefix, self.lanes, self.next_state.shape
        flags = np.where(self.terminated, np.uint8(Flag.TERMINATED), np.uint8(0))
        return (
            *common_buffers(self.names, e, self.observation_width),
            Buffer(f"{p}_table_next", table, "i32", initial=lambda: self.next_state),
            Buffer(f"{p}_table_reward", table, "f32", initial=lambda: self.reward),
            Buffer(f"{p}_table_flags", table, "u8", initial=lambda: flags),
            Buffer(f"{p}_lane_state", (e,), "i32", persistent=True),
            Buffer(f"{p}_lane_steps", (e,), "i32", persistent=True),
            Buffer(f"{p}_lane_episode", (e,), "i64", persistent=True),
        )

    def _op(self, *, reset: bool) -> Op:
        p, names = self.names.prefix, self.names
        return Launch(
            "env_tabular",
            {
                "table_next": Ref(f"{p}_table_next"),
                "table_reward": Ref(f"{p}_table_reward"),
                "table_flags": Ref(f"{p}_table_flags"),
                "action": Ref(names.action),
                "lane_state": Ref(f"{p}_lane_state"),
                "lane_steps": Ref(f"{p}_lane_steps"),
                "lane_episode": Ref(f"{p}_lane_episode"),
                "obs": Ref(names.obs),
                "obs_tm1": Ref(names.obs_tm1),
                "obs_t": Ref(names.obs_t),
                "reward": Ref(names.reward),
                "flags": Ref(names.flags),
                "episode": Ref(names.episode),
                "lanes": self.lanes,
                "states": self.observation_width,
                "actions": self.actions,
                "padded": -(-self.observation_width // 8) * 8,
                "start": self.start,
                "max_steps": self.max_steps,
                "seed": self.seed,
                "reset": int(reset),
            },
        )

    def step(self) -> Op:
        """Step every lane."""
        return self._op(reset=False)

    def reset(self) -> Op:
        """Start an episode in every lane."""
        return self._op(reset=True)

    def optimal_q(self, gamma: float, *, tolerance: float = 1e-12) -> NDArray[np.float64]:
        """Q* [S, A] by value iteration in float64; truncation does not bound the value.

        A reward that is NaN makes the values that depend on it NaN.
        """
        q = np.zeros(self.next_state.shape)
        while True:
            value = np.where(self.terminated, 0.0, q.max(axis=1)[self.next_state])
            updated = self.reward + gamma * value
            moves = np.abs(updated - q) > tolerance  # never where both are NaN
            if not moves.any() and np.array_equal(np.isnan(updated), np.isnan(q)):
                result: NDArray[np.float64] = updated
                return result
            q = updated


def _environment(
    moves: list[list[tuple[int, float, bool]]], *, start: int, max_steps: int, lanes: int, seed: int
) -> TabularEnvironment:
    return TabularEnvironment(
        np.array([[m[0] for m in row] for row in moves], np.int32),
        np.array([[m[1] for m in row] for row in moves], np.float32),
        np.array([[m[2] for m in row] for row in moves], np.bool_),
        start,
        max_steps,
        lanes,
        seed,
    )


def chain(lanes: int, seed: int, max_steps: int = 0, length: int = 5) -> TabularEnvironment:
    """`length` states in a row; right (1) from the last one ends the episode with +1."""
    moves = [
        [
            (max(s - 1, 0), 0.0, False),
            (min(s + 1, length - 1), float(s == length - 1), s == length - 1),
        ]
        for s in range(length)
    ]
    return _environment(moves, start=0, max_steps=max_steps, lanes=lanes, seed=seed)


def truncation_probe(lanes: int, seed: int, max_steps: int = 10) -> TabularEnvironment:
    """One state, reward 1 whatever is done, truncated every `max_steps`: Q = 1 / (1 - gamma)."""
    return _environment(
        [[(0, 1.0, False)] * 2], start=0, max_steps=max_steps, lanes=lanes, seed=seed
    )


def cliff(lanes: int, seed: int, max_steps: int = 0) -> TabularEnvironment:
    """Gymnasium's CliffWalking-v1: 4 x 12 states; the cliff costs 100 and resets."""
    rows, cols, start, goal = 4, 12, 36, 47
    moves = []
    for s in range(rows * cols):
        r, c = divmod(s, cols)
        row = []
        for dr, dc in ((-1, 0), (0, 1), (1, 0), (0, -1)):
            to = min(max(r + dr, 0), rows - 1) * cols + min(max(c + dc, 0), cols - 1)
            fell = start < to < goal
            row.append((start if fell else to, -100.0 if fell else -1.0, to == goal))
        moves.append(row)
    return _environment(moves, start=start, max_steps=max_steps, lanes=lanes, seed=seed)
