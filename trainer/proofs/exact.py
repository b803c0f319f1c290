"""Exact values of gymnasium's toy text environments, by value iteration over their own tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.trainer.envs.gym.errors import gymnasium


@dataclass(frozen=True)
class ExactMdp:
    """A finite Markov decision process of S states and A actions.

    Attributes:
        reward: expected reward, float64 [S, A].
        onward: probability of each next state from which the episode goes on, float64 [S, A, S].
        start: probability of each state that an episode starts in, float64 [S].
    """

    reward: NDArray[np.float64]
    onward: NDArray[np.float64]
    start: NDArray[np.float64]

    @property
    def states(self) -> int:
        return len(self.reward)

    def optimal_values(self, gamma: float, *, tolerance: float = 1e-12) -> NDArray[np.float64]:
        """V* [S] by value iteration (Sutton & Barto 2018, section 4.4); `gamma` is below 1.

        A limit on an episode's steps does not bound the value: it truncates.
        """
        value = np.zeros(self.states)
        while True:
            updated: NDArray[np.float64] = (self.reward + gamma * self.onward @ value).max(axis=1)
            if np.abs(updated - value).max() <= tolerance:
                return updated
            value = updated


def toy_text(name: str, kwargs: Mapping[str, object]) -> ExactMdp:
    """The process behind the environment `name`, which has its table in `P`.

    Raises:
        GymnasiumError: gymnasium is not installed.
    """
    env = gymnasium().make(name, **kwargs).unwrapped
    states, actions = int(env.observation_space.n), int(env.action_space.n)
    reward, onward = np.zeros((states, actions)), np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            for chance, after, gain, terminated in env.P[s][a]:
                reward[s, a] += chance * gain
                if not terminated:
                    onward[s, a, after] += chance
    return ExactMdp(reward, onward, np.array(env.initial_state_distrib, np.float64))
