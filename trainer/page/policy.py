"""What the run learned: its equity curve beside the baselines, or its action values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.device.base import Device
from onegraph.stages.registry import ALL
from onegraph.trainer.action_values import q_error, q_table
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.evaluation import EquityCurve, WindowEvaluator
from onegraph.trainer.market import Metrics
from onegraph.trainer.trainer import Trainer


@dataclass(frozen=True)
class Policy:
    """A checkpoint's greedy policy.

    Attributes:
        curves, figures: over the test window by name, the policy first; empty without a market.
        learned, exact: action values [S, A] of a tabular environment, else ``None``.
        error: their largest difference.
    """

    learns: int
    curves: dict[str, EquityCurve]
    figures: dict[str, Metrics]
    learned: NDArray[np.float32] | None
    exact: NDArray[np.float64] | None
    error: float


def evaluate_policy(checkpoint: Path, device: Device) -> Policy:
    """Run the greedy policy of `checkpoint` on `device`.

    Raises:
        CheckpointError: the file is damaged.
        MarketDataError: the bars can't be read any more.
    """
    loaded = load_checkpoint(checkpoint)
    trainer = Trainer(loaded.config, device, ALL, optional=ALL)
    try:
        trainer.restore(loaded.state, loaded.progress)
        curves: dict[str, EquityCurve] = {}
        figures: dict[str, Metrics] = {}
        learned = exact = None
        error = 0.0
        if trainer.market is not None:
            evaluator = WindowEvaluator(
                trainer.programs,
                trainer.workspace,
                trainer.market,
                trainer.market.windows.test,
                "test",
            )
            curves = {"policy": evaluator.curve(), **evaluator.baseline_curves()}
            figures = {name: evaluator.figures(curve) for name, curve in curves.items()}
        elif isinstance(trainer.environment, TabularEnvironment):
            learned = q_table(trainer, trainer.environment)
            exact = trainer.environment.optimal_q(trainer.config.learn.gamma)
            error = q_error(trainer, trainer.environment)
        return Policy(loaded.progress.learns, curves, figures, learned, exact, error)
    finally:
        trainer.close()
