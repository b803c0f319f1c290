"""Learned action values of a tabular environment beside the exact ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.trainer import Trainer


def q_table(trainer: Trainer, environment: TabularEnvironment) -> np.ndarray[Any, Any]:
    """The learned action values [S, A] of a tabular environment."""
    observations = np.eye(environment.observation_width, dtype=np.float32)
    return trainer.q_values(observations)


def q_error(trainer: Trainer, environment: TabularEnvironment) -> float:
    """The largest difference from the exact action values, over states that can be visited."""
    exact = environment.optimal_q(trainer.config.learn.gamma)
    return float(np.abs(q_table(trainer, environment) - exact).max())
