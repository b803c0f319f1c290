"""Hindsight relabelling of a run: from its config and its environment's goal."""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.kernels.replay.hindsight_assemble import Strategy
from onegraph.trainer.config import Config, MismatchError
from onegraph.trainer.envs.base import Environment, Goal


@dataclass(frozen=True)
class Relabelling:
    """How sampled rows are given other goals (Andrychowicz et al. 2017).

    Attributes:
        strategy: where the goals come from.
        share: the chance with which a row is given one.
        goal: which columns of a state say what was achieved, and which hold the goal.
    """

    strategy: Strategy
    share: float
    goal: Goal


def relabelling(config: Config, environment: Environment) -> Relabelling | None:
    """How the rows of `environment` are relabelled; ``None`` where they keep their goals.

    Raises:
        MismatchError: hindsight is on, and the environment's observations hold no goal.
    """
    hindsight = config.hindsight
    if hindsight.strategy == "none":
        return None
    if environment.goal is None:
        problem = (
            f"{hindsight.strategy!r} needs observations that hold a goal, and those of env.kind ="
            f" {config.env.kind!r} hold none; use 'none', or env.kind = 'bit-flip'"
        )
        raise MismatchError(config, "hindsight.strategy", problem)
    share = hindsight.k / (hindsight.k + 1)
    return Relabelling(Strategy[hindsight.strategy.upper()], share, environment.goal)
