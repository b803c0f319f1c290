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
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.staged import staged
from onegraph.trainer.trainer import Trainer


class TrainerRun:
    """A trainer whose replay holds what learning needs; a step is a round of the loop.

    Where the device takes rounds by itself, it takes every other one of those that are not timed
    (and the first two): the programs that the host launches are still run both ways.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._plain = 0  # steps that were not to be timed
        while trainer.rows < trainer.config.loop.start_steps:
            trainer.collect()
        # Captured here, and not when the first timed step comes between the rounds of a loop.
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
            return {"epoch": trainer.take_rounds(1).calls}
        for _ in range(loop.learn_every):
            collected = trainer.collect(timed=timed)
        for _ in range(loop.learns_per_collect):
            learned = trainer.learn(timed=timed)
        return {"learn": learned, "collect": collected}

    def choices(self) -> NDArray[Any]:
        return self.trainer.indices()

    def parameters(self) -> NDArray[Any]:
        return self.trainer.parameters()

    def close(self) -> None:
        self.trainer.close()


@dataclass(frozen=True)
class TrainerSubject:
    """The DQN of a config."""

    config: Config

    @property
    def name(self) -> str:
        return f"dqn on {self.config.env.kind}"

    @property
    def known(self) -> Sequence[Stage]:
        """The stages that can be on with the config."""
        return self._known

    @cached_property
    def _known(self) -> tuple[Stage, ...]:
        environment, _ = build_environment(self.config)
        network = QNetwork.of(self.config, environment)
        shapes = Shapes(self.config, network, self.config.replay.capacity)
        try:
            refused = staged(DqnPrograms(shapes, environment), ALL).refused
        except ProgramError:  # a stage is broken: that is for the sets that have it to say
            return tuple(STAGES)
        return tuple(stage for stage in STAGES if stage.number not in refused)

    def at(self, stages: StageSet, device: Device) -> TrainerRun:
        return TrainerRun(Trainer(self.config, device, stages))
