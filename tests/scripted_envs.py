"""Environments of gymnasium that do what a script says, to see what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from onegraph.trainer.envs.gym import GymnasiumEnvironment, over_vector_environment

#: How an episode ends: (terminated, truncated).
TERMINATED, TRUNCATED, BOTH = (True, False), (False, True), (True, True)

Episode = tuple[int, tuple[bool, bool]]


class Scripted(gymnasium.Env):
    """Shows 100 x lane + 10 x episode + step; its reward is 1 + step / 4.

    Args:
        lane: what it begins its observations with.
        episodes: the length of each episode and how it ends; after the last the first again.
        actions: how many there are, and the first.
        bad: observations that are replaced: (episode, step) to a value.
    """

    def __init__(
        self,
        lane: int,
        episodes: Sequence[Episode],
        actions: tuple[int, int] = (2, 0),
        bad: dict[tuple[int, int], float] | None = None,
    ) -> None:
        self.lane, self.episodes, self.bad = lane, list(episodes), dict(bad or {})
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions[0], start=actions[1])
        self.episode, self.at = -1, 0
        self.done: list[int] = []

    def _seen(self) -> np.ndarray:
        plain = 100 * self.lane + 10 * self.episode + self.at
        return np.array([self.bad.get((self.episode, self.at), plain)], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.episode, self.at = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: int):
        assert self.action_space.contains(action), action
        self.done.append(int(action))
        self.at += 1
        length, ending = self.episodes[self.episode % len(self.episodes)]
        terminated, truncated = ending if self.at == length else (False, False)
        return self._seen(), 1 + self.at / 4, terminated, truncated, {}


@dataclass(frozen=True)
class Script:
    """Lanes of `Scripted`."""

    lanes: Sequence[Sequence[Episode]]
    mode: AutoresetMode = AutoresetMode.SAME_STEP
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, lanes: int | None = None) -> SyncVectorEnv:
        scripts = [self.lanes[i % len(self.lanes)] for i in range(lanes or len(self.lanes))]
        options = dict(self.options)
        return SyncVectorEnv(
            [
                lambda i=i, s=s: Scripted(i, s, **options)  # type: ignore[misc]
                for i, s in enumerate(scripts)
            ],
            autoreset_mode=self.mode,
        )

    def environment(self, seed: int = 0) -> GymnasiumEnvironment:
        return over_vector_environment(self(), seed, evaluation=self)
