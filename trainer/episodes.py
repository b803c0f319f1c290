"""Greedy episodes in lanes of the host, for evaluation: which episodes count, and their returns.

Each lane has a quota, and its first episodes up to that count, however long they are. To take the
first n that end, over all lanes, would prefer short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import Flag
from onegraph.stages.runner import Runner
from onegraph.trainer.envs.gym.environment import GymnasiumEnvironment
from onegraph.trainer.host_stepping import EVALUATION, LaneSession, lane_seeds
from onegraph.trainer.trainer import Trainer

#: Most lanes of an evaluation.
LANES = 20

#: Steps after which an episode that has not ended is cut, where the environment has no limit.
MOST_STEPS = 10_000

#: States whose values are computed at once.
BLOCK = 4096


@dataclass(frozen=True)
class EpisodeFigures:
    """What greedy episodes came to.

    Attributes:
        returns: float64 [n], undiscounted.
        lengths: int64 [n], steps.
        cut: how many were broken off at `MOST_STEPS`; their returns are those so far, and the
            episodes behind them in their lanes are missing.
        mean_q: mean over the states acted in of the greedy action's value.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    cut: int
    mean_q: float

    @property
    def mean_return(self) -> float:
        return float(self.returns.mean())

    def named(self, prefix: str) -> dict[str, float]:
        """The figures by name."""
        values = {
            "return": self.mean_return,
            "return_std": float(self.returns.std()),
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
            "length": float(self.lengths.mean()),
            "mean_q": self.mean_q,
        }
        return {f"{prefix}{name}": value for name, value in values.items()}


def quotas(episodes: int, lanes: int) -> NDArray[np.int64]:
    """How many episodes of each lane count, int64 [lanes]: as even as can be, first lanes first."""
    return episodes // lanes + (np.arange(lanes) < episodes % lanes)


class EpisodeEvaluator:
    """Runs greedy episodes in lanes of their own, seeded apart from training.

    Every run has the same ones, so that epochs and runs can be compared.

    Raises:
        GymnasiumError: there is no way to make lanes beside those of training.
    """

    def __init__(self, trainer: Trainer, environment: GymnasiumEnvironment, episodes: int) -> None:
        lanes = min(episodes, LANES)
        self.trainer, self.episodes = trainer, episodes
        self.environment = environment.for_evaluation(lanes, f"episodes_{lanes}")

    def run(self, progress: Callable[[int], None] = lambda _: None) -> EpisodeFigures:
        """The figures of the present policy.

        Args:
            progress: told how many episodes are done.
        """
        lanes = self.environment.open_lanes()
        try:
            programs, workspace = self.trainer.programs, self.trainer.workspace
            session = LaneSession(
                self.environment, lanes, workspace, programs.actions(self.environment, "epoch")
            )
            act = Runner(programs.evaluate(self.environment), workspace)
            return self._run(session, act, progress)
        finally:
            lanes.close()

    def _run(
        self, session: LaneSession, act: Runner, progress: Callable[[int], None]
    ) -> EpisodeFigures:
        n = self.environment.lanes
        arrays, quota = session.arrays, quotas(self.episodes, n)
        session.lanes.reset(lane_seeds(self.environment.seed, EVALUATION, n), arrays)
        values = _Values(self.trainer)
        done, running, cut = np.zeros(n, np.int64), np.zeros(n, np.int64), 0
        gains, gain = dict[tuple[int, int], tuple[float, int]](), np.zeros(n)
        while (open_lanes := done < quota).any():
            act.step()
            session.read()
            seen = arrays.obs.copy()
            session.advance()
            acted = (arrays.flags & Flag.INVALID) == 0
            values.add(seen[open_lanes & acted])
            running += acted
            gain += np.where(acted, arrays.reward, 0.0)
            finished = session.lanes.take_finished()
            for lane, total, steps in zip(
                finished.lanes, finished.returns, finished.lengths, strict=True
            ):
                running[lane], gain[lane] = 0, 0.0
                if done[lane] < quota[lane]:
                    gains[int(done[lane]), int(lane)] = float(total), int(steps)
                    done[lane] += 1
            for lane in np.flatnonzero(open_lanes & (running >= MOST_STEPS)):
                gains[int(done[lane]), int(lane)] = float(gain[lane]), int(running[lane])
                done[lane], cut = quota[lane], cut + 1
            progress(len(gains))
        counted = [gains[key] for key in sorted(gains)]
        return EpisodeFigures(
            np.array([total for total, _ in counted]),
            np.array([steps for _, steps in counted], np.int64),
            cut,
            values.mean(),
        )


class _Values:
    """The mean value of the greedy action over states that come a few at a time."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._waiting: list[NDArray[np.float32]] = []
        self._rows = self._count = 0
        self._sum = 0.0

    def add(self, states: NDArray[np.float32]) -> None:
        self._waiting.append(states)
        self._rows += len(states)
        if self._rows >= BLOCK:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        best = self._trainer.q_values(np.concatenate(self._waiting)).max(axis=1)
        self._sum += float(best.sum())
        self._count += self._rows
        self._waiting, self._rows = [], 0

    def mean(self) -> float:
        self._flush()
        return self._sum / self._count if self._count else 0.0
