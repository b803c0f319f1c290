"""What an environment measures a policy by, once an epoch.

A kind of environment that has a score registers here how it is found; the loop asks for it and
knows no kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatch

from onegraph.trainer.action_values import q_error
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.gym.environment import GymnasiumEnvironment
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.episodes import EpisodeEvaluator
from onegraph.trainer.evaluation import GoalEvaluator, WindowEvaluator
from onegraph.trainer.market import Metrics
from onegraph.trainer.trainer import Trainer


@dataclass(frozen=True)
class Validation:
    """A policy's score and where it comes from.

    Attributes:
        score: the higher the better; selects the best checkpoint.
        figures: numbers for the epoch's line in ``metrics.jsonl``, by name.
        metrics: of a walk through a market's validation window.
    """

    score: float
    figures: Mapping[str, float] = field(default_factory=dict)
    metrics: Metrics | None = None


Validator = Callable[[], Validation]


@singledispatch
def validator(environment: object, trainer: Trainer) -> Validator | None:
    """How to validate the trainer's policy in its environment; ``None`` if it has no score."""
    del environment, trainer
    return None


@validator.register
def _(environment: MarketEnvironment, trainer: Trainer) -> Validator | None:
    del environment
    market = trainer.market
    if market is None:
        return None
    window = market.windows.validation
    walk = WindowEvaluator(trainer.programs, trainer.workspace, market, window, "validation")

    def validate() -> Validation:
        metrics = walk.metrics()
        return Validation(metrics.sharpe, metrics=metrics)

    return validate


@validator.register
def _(environment: BitFlipEnvironment, trainer: Trainer) -> Validator:
    goals = GoalEvaluator(trainer.programs, trainer.workspace, environment)

    def validate() -> Validation:
        rate = goals.success_rate()
        return Validation(rate, {"success_rate": rate})

    return validate


@validator.register
def _(environment: TabularEnvironment, trainer: Trainer) -> Validator:
    def validate() -> Validation:
        error = q_error(trainer, environment)
        return Validation(-error, {"max_q_error": error})

    return validate


@validator.register
def _(environment: GymnasiumEnvironment, trainer: Trainer) -> Validator | None:
    episodes = trainer.config.env.validation_episodes
    if not episodes or environment.fresh is None:
        return None
    evaluator = EpisodeEvaluator(trainer, environment, episodes)

    def validate() -> Validation:
        figures = evaluator.run()
        return Validation(figures.mean_return, figures.named("validation_"))

    return validate
