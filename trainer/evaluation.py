"""Greedy evaluation of a policy, outside the step: its own lane, its own buffers, ungraphed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.env.env_market import LaneI64, TraceField
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.envs.base import reset_program, walk_program
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.build import MarketSetup
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.market import Metrics, evaluate_curve, periods_per_year
from onegraph.trainer.program import DqnPrograms


@dataclass(frozen=True)
class EquityCurve:
    """A walk through a window.

    Attributes:
        time: int64 [T], UTC ns at which each step ended.
        equity: float64 [T + 1], the initial equity first.
        position: float64 [T], held in each step.
        reward: float64 [T].
    """

    time: NDArray[np.int64]
    equity: NDArray[np.float64]
    position: NDArray[np.float64]
    reward: NDArray[np.float64]


class WindowEvaluator:
    """Walks one window of the bars: by the greedy policy, or by a fixed action."""

    def __init__(
        self,
        programs: DqnPrograms,
        workspace: Workspace,
        market: MarketSetup,
        window: slice,
        name: str,
    ) -> None:
        self.workspace, self.market, self.name = workspace, market, name
        self.window = window
        self.environment = market.environment.over(window, name)
        self._reset = Runner(reset_program(self.environment), workspace)
        self._step = Runner(programs.evaluate(self.environment), workspace)
        self._periods = periods_per_year(market.bars.time)

    def curve(self) -> EquityCurve:
        """The greedy policy's walk."""
        return self._walk(self._reset, self._step, self.environment)

    def metrics(self) -> Metrics:
        """Figures of the greedy policy's walk."""
        return self.figures(self.curve())

    def baselines(self) -> dict[str, Metrics]:
        """Figures of the baselines' walks."""
        return {name: self.figures(curve) for name, curve in self.baseline_curves().items()}

    def baseline_curves(self) -> dict[str, EquityCurve]:
        """Flat, and buy-and-hold at the same costs in the same environment."""
        rules = self.environment.rules.model_copy(update={"positions": (0.0, 1.0)})
        found = {}
        for label, action in (("flat", 0), ("buy and hold", 1)):
            lane = replace(
                self.environment, rules=rules, names=replace(self.environment.names, prefix="base")
            )
            reset = Runner(reset_program(lane), self.workspace)
            step = Runner(walk_program(lane), self.workspace)
            self.workspace.ensure(step.program.buffers)
            self.workspace.write("base_action", np.full(1, action, np.int32))
            found[label] = self._walk(reset, step, lane)
        return found

    def _walk(self, reset: Runner, step: Runner, lane: MarketEnvironment) -> EquityCurve:
        prefix = lane.names.prefix
        reset.step()
        for _ in range(lane.last - lane.first - 1):
            step.step()
        with self.workspace.device.ledger.within("epoch"):
            trace = self.workspace.read(f"{prefix}_trace")[0]
            rows = int(self.workspace.read(f"{prefix}_lane_i64")[0, LaneI64.TRACED])
        trace = trace[:rows]
        cursor = trace[:, TraceField.CURSOR].astype(np.int64)
        return EquityCurve(
            self.market.bars.time[cursor],
            np.concatenate([[lane.rules.initial_equity], trace[:, TraceField.EQUITY]]),
            trace[:, TraceField.POSITION].copy(),
            trace[:, TraceField.REWARD].copy(),
        )

    def figures(self, curve: EquityCurve) -> Metrics:
        """Figures of a walk through this window."""
        return evaluate_curve(curve.equity, curve.position, curve.time, periods=self._periods)


#: Episodes of an evaluation that counts those that reach their goal.
GOAL_EPISODES = 100


class GoalEvaluator:
    """Counts the greedy episodes that reach their goal.

    Each lane runs one episode, whose state and goal are drawn by a key that no training has. Every
    evaluation runs the same ones, so that epochs, runs and devices can be compared.
    """

    def __init__(
        self,
        programs: DqnPrograms,
        workspace: Workspace,
        environment: BitFlipEnvironment,
        episodes: int = GOAL_EPISODES,
    ) -> None:
        self.workspace, self.episodes = workspace, episodes
        self.environment = environment.for_evaluation(episodes, f"goals_{episodes}")
        self._steps = self.environment.max_steps or self.environment.bits
        self._reset = Runner(reset_program(self.environment), workspace)
        self._step = Runner(programs.evaluate(self.environment), workspace)

    def reached(self) -> NDArray[np.bool_]:
        """Whether each episode reached its goal before it was truncated [episodes]."""
        names, ledger = self.environment.names, self.workspace.device.ledger
        with ledger.within("epoch"):
            self.workspace.ensure(self._step.program.buffers)
            begun = np.zeros(self.episodes, np.int64)
            self.workspace.write(f"{names.prefix}_lane_episode", begun)
        self._reset.step()
        reached = np.zeros(self.episodes, np.bool_)
        ended = np.zeros(self.episodes, np.bool_)
        for _ in range(self._steps):
            self._step.step()
            with ledger.within("epoch"):
                flags = self.workspace.read(names.flags)
            # A lane goes on with another episode at once; only its first counts.
            reached |= ~ended & ((flags & Flag.TERMINATED) != 0)
            ended |= (flags & (Flag.TERMINATED | Flag.TRUNCATED)) != 0
            if ended.all():
                break
        return reached

    def success_rate(self) -> float:
        """The share of the episodes that reach their goal."""
        return float(self.reached().mean())
