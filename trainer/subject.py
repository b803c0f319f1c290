"""The trainer as a subject of verification and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from onegraph.guards.markers import hot_path
from onegraph.kernels.device.base import Device
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.budget import Budget
from onegraph.stages.program import ProgramError
from onegraph.stages.registry import ALL, STAGES, StageSet
from onegraph.stages.runner import Runner
from onegraph.stages.stage import Stage
from onegraph.trainer.config import Config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.network import QNetwork
from onegraph.trainer.offline import offline_run
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.staged import staged
from onegraph.trainer.trainer import Say, Trainer


class TrainerRun:
    """A trainer whose replay holds what learning needs; a step is a round of the loop.

    Lanes of the host do their part of it in the collecting steps; an offline run only learns.

    Where the device takes rounds by itself, it takes every other one of those that are not timed
    (and the first two): the programs that the host launches are still run both ways.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._plain = 0  # steps that were not to be timed
        while trainer.rows < trainer.config.loop.start_steps:
            trainer.collect()
        # Captured here, and not when the first timed step comes between the rounds of a loop.
        if trainer.offline is None:
            trainer.collect()
        trainer.learn()

    @property
    def runners(self) -> Mapping[str, Runner]:
        return self.trainer.runners

    @property
    def budgets(self) -> Mapping[str, Budget]:
        return self.trainer.budgets

    @hot_path
    def step(self, *, timed: bool = False) -> Mapping[str, StepCounts]:
        trainer, loop = self.trainer, self.trainer.config.loop
        self._plain += not timed
        if trainer.loops and not timed and (self._plain <= 2 or self._plain % 2 == 0):
            return {"epoch": self._round()}
        counts: dict[str, StepCounts] = {}
        if trainer.offline is None:
            for _ in range(loop.learn_every):
                counts["collect"] = trainer.collect(timed=timed)
            if (handover := trainer.handover) is not None:
                counts["env_actions"] = handover
        for _ in range(loop.learns_per_collect):
            counts["learn"] = trainer.learn(timed=timed)
        return counts

    @hot_path
    def _round(self) -> StepCounts:
        """A round that the device takes by itself, and counts: a trace may not see inside it."""
        trainer, each = self.trainer, self.trainer.config.loop.learns_per_collect
        before = trainer.progress.learns
        taken = trainer.take_rounds(1)
        if taken.learns != before + each:
            raise ProgramError(
                f"program epoch was asked for a round of {each} learning steps, and the device"
                f" counted {taken.learns - before}; its control goes on or ends where it should not"
            )
        return taken.calls

    def choices(self) -> NDArray[Any]:
        return self.trainer.indices()

    def parameters(self) -> NDArray[Any]:
        return self.trainer.parameters()

    def close(self) -> None:
        self.trainer.close()


@dataclass(frozen=True)
class TrainerSubject:
    """The DQN of a config.

    Attributes:
        say: told what the trainer has to say as it is made.
    """

    config: Config
    say: Say = lambda _: None

    @property
    def name(self) -> str:
        return f"dqn on {self.config.env.id or self.config.env.kind}"

    @property
    def known(self) -> Sequence[Stage]:
        """The stages that can be on with the config."""
        return tuple(stage for stage in STAGES if stage.number not in self.refused)

    @cached_property
    def refused(self) -> Mapping[int, str]:
        """The stages that can't be, by number, and why."""
        config, offline = offline_run(self.config)
        environment, _ = build_environment(config, offline)
        network = QNetwork.of(config, environment)
        shapes = Shapes(config, network, config.replay.capacity)
        try:
            return staged(DqnPrograms(shapes, environment), ALL).refused
        except ProgramError:  # a stage is broken: that is for the sets that have it to say
            return {}

    def at(self, stages: StageSet, device: Device) -> TrainerRun:
        return TrainerRun(Trainer(self.config, device, stages, say=self.say))
