"""Keeps an episode's final observation from being overwritten by the reset that follows at once.

Imports gymnasium, and so is imported where lanes are made and nowhere else.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class KeepsFinal(gymnasium.Wrapper):  # type: ignore[misc]
    """Copies what an episode ends with.

    An environment may give the same array in each step and write into it; autoreset in the same
    step keeps a reference to the final observation, and would then show the reset's.
    """

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            observation = np.copy(observation)
        return observation, reward, terminated, truncated, info
