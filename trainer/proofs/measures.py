"""What the proofs measure of a finished trainer."""

from __future__ import annotations

import numpy as np

from onegraph.trainer.action_values import q_table
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.gym.environment import GymnasiumEnvironment
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.episodes import EpisodeEvaluator
from onegraph.trainer.evaluation import GoalEvaluator
from onegraph.trainer.loop import EpochSummary
from onegraph.trainer.proofs.exact import toy_text
from onegraph.trainer.proofs.proof import Figures
from onegraph.trainer.trainer import Trainer

#: Levels in the middle of equal parts, over which a mean of quantiles is the distribution's.
LEVELS = ((np.arange(64) + 0.5) / 64).astype(np.float32)

#: Goals that the bit flip is asked for: a share of 1,000 has a standard error below 0.016.
GOALS = 1_000

#: Greedy episodes of the final policy.
EPISODES = 100


def _table(trainer: Trainer) -> tuple[np.ndarray, np.ndarray, TabularEnvironment]:
    """Learned and exact action values [S, A], and the environment that they are of."""
    environment = trainer.environment
    assert isinstance(environment, TabularEnvironment)
    return (
        q_table(trainer, environment),
        environment.optimal_q(trainer.config.learn.gamma),
        environment,
    )


def right_values(trainer: Trainer) -> Figures:
    """The chain: the largest error of Q(right), and each of the five values."""
    learned, exact, _ = _table(trainer)
    found = {"error of Q(right)": float(np.abs(learned - exact)[:, 1].max())}
    return found | {f"Q(right) in state {s}": float(q) for s, q in enumerate(learned[:, 1])}


def one_value(trainer: Trainer) -> Figures:
    """The truncation probe: of its two action values, the one farther from the exact one."""
    learned, exact, _ = _table(trainer)
    worst = np.argmax(np.abs(learned - exact))
    return {"Q": float(learned.reshape(-1)[worst])}


def start_value(trainer: Trainer) -> Figures:
    """A tabular environment: max_a Q of the state that episodes start in, learned and exact."""
    learned, exact, environment = _table(trainer)
    start = environment.start
    return {
        "V(start)": float(learned[start].max()),
        "V(start), exact": float(exact[start].max()),
    }


def goals_reached(trainer: Trainer) -> Figures:
    """The bit flip: the share of `GOALS` goals that the greedy policy reaches."""
    assert isinstance(trainer.environment, BitFlipEnvironment)
    goals = GoalEvaluator(trainer.programs, trainer.workspace, trainer.environment, GOALS)
    return {"goals reached": goals.success_rate()}


def coin_quantiles(trainer: Trainer) -> Figures:
    """The coin, returns 0 and 1 by chance: how far its quantiles are from 0 and 1, and their mean.

    The levels around one half, where the step is, are left out of the first.
    """
    found = trainer.quantiles(np.ones((1, 1), np.float32), LEVELS)[0]  # [A, levels]
    away = np.abs(LEVELS - 0.5) > 0.1
    return {
        "error of the quantiles": float(np.abs(found - (LEVELS > 0.5))[:, away].mean()),
        "mean return": float(found.mean()),
        "deviation of the return": float(found.std(axis=1).mean()),
    }


def greedy_episodes(trainer: Trainer) -> Figures:
    """An environment of gymnasium: returns of greedy episodes of the final policy, and mean Q."""
    environment = trainer.environment
    assert isinstance(environment, GymnasiumEnvironment)
    figures = EpisodeEvaluator(trainer, environment, EPISODES).run()
    return {
        "mean return": figures.mean_return,
        "mean Q": figures.mean_q,
        "lowest return": float(figures.returns.min()),
    }


def validation_return(trainer: Trainer, summary: EpochSummary) -> float | None:
    """The mean return of the few greedy episodes that the loop runs at an epoch's end."""
    del trainer
    return summary.score


def discrete_start(trainer: Trainer) -> Figures:
    """A toy text environment: the mean of max_a Q over where episodes start, learned and exact."""
    exact = toy_text(trainer.config.env.id, dict(trainer.config.env.kwargs))
    learned = trainer.q_values(np.eye(exact.states, dtype=np.float32))
    values = exact.optimal_values(trainer.config.learn.gamma)
    return {
        "V(start)": float(exact.start @ learned.max(axis=1)),
        "V(start), exact": float(exact.start @ values),
    }
