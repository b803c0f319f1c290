"""The trainer as a subject of verification and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from onegraph.guards.markers import hot_path
from onegraph.kernels.device.base import Device
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.budget import Budget
from onegraph.stages.registry import STAGES, StageSet
from onegraph.stages.runner import Runner
from onegraph.stages.stage import Stage
from onegraph.trainer.config import Config
from onegraph.trainer.trainer import Say, Trainer


class TrainerRun:
    """A trainer whose replay holds what learning needs; a step learns, then collects."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        while trainer.rows < trainer.config.loop.start_steps:
            trainer.collect()

    @property
    def runners(self) -> Mapping[str, Runner]:
        return self.trainer.runners

    @property
    def budgets(self) -> Mapping[str, Budget]:
        return self.trainer.budgets

    @hot_path
    def step(self, *, timed: bool = False) -> Mapping[str, StepCounts]:
        learned = self.trainer.learn(timed=timed)
        if self.trainer.offline is not None:
            return {"learn": learned}
        counts = {"learn": learned, "collect": self.trainer.collect(timed=timed)}
        if (handover := self.trainer.handover) is not None:
            counts["env_actions"] = handover
        return counts

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
        return STAGES

    def at(self, stages: StageSet, device: Device) -> TrainerRun:
        return TrainerRun(Trainer(self.config, device, stages, say=self.say))
