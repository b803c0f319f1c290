"""The learning step as a subject of benchmarks: at named sizes, over a full replay.

The replay is full of random transitions with random priorities, as it is in a long run. The target
update, the importance exponent and the learning rate are held constant, so that a peer has no
schedule to compute; our step computes its schedules all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.device.base import Device
from onegraph.kernels.device.ledger import StepCounts
from onegraph.kernels.learner.matmul import Precision, is_large, is_wide
from onegraph.stages.bench import ProgramSteps, set_label
from onegraph.stages.budget import Budget
from onegraph.stages.program import MatmulGroup, MatmulOp, Op, Parts, StepProgram
from onegraph.stages.registry import ALL, STAGES, StageSet, apply, budget
from onegraph.stages.round_program import round_program
from onegraph.stages.runner import Runner
from onegraph.stages.stage import Stage
from onegraph.stages.workspace import Workspace
from onegraph.trainer.config import Config, load_config
from onegraph.trainer.envs.tabular import TabularEnvironment, chain
from onegraph.trainer.network import QNetwork
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.random_replay import random_replay
from onegraph.trainer.rounds import Rounds
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.trainer import MIRRORS, TrainerError
from onegraph.trainer.tuning import FusionChooser, Say

#: The phases that the replay alone has: drawing, counting (which moves the random stream on, so
#: that each step draws other rows), and writing priorities back.
REPLAY_PHASES = ("per_sample", "counters", "per_priority")

#: Fields that a benchmark takes from elsewhere, so that overriding them would do nothing.
_ELSEWHERE = {
    "device": "--device",
    "stages": "--stages",
    "env.kind": "nothing: it steps no environment",
}

_COMMON: Mapping[str, object] = {
    "env.kind": "chain",
    "env.lanes": 16,
    "learn.tau.kind": "constant",
    "learn.tau.start": 0.005,
    "learn.lr.kind": "constant",
    "replay.beta_start": 0.4,
    "replay.beta_end": 0.4,
    "loop.timed_steps": 8,
}


@dataclass(frozen=True)
class Size:
    """A size of the learning step, by name.

    Attributes:
        states: width of a state.
        fields: config fields that make it.
        replay_only: only draw and write back, with given TD errors.
    """

    name: str
    states: int
    fields: Mapping[str, object]
    replay_only: bool = False


def _size(
    name: str,
    states: int,
    hidden: Sequence[int],
    batch: int,
    capacity: int,
    *,
    preset: str = "dqn",
    replay_only: bool = False,
) -> Size:
    fields = {
        **_COMMON,
        "preset": preset,
        "network.hidden": list(hidden),
        "learn.batch_size": batch,
        "loop.start_steps": batch,
        "replay.capacity": capacity,
    }
    return Size(name, states, fields, replay_only)


SIZES: dict[str, Size] = {
    size.name: size
    for size in (
        _size("S", 4, (120, 84), 128, 10_000),
        _size("M", 64, (256, 256), 64, 2**20),
        _size("B512", 64, (512, 512), 512, 2**20),
        _size("L", 64, (1024, 1024), 2048, 2**20),
        _size("FULL", 64, (256,), 256, 2**20, preset="full"),
        _size("REPLAY", 4, (8,), 65_536, 2**20, replay_only=True),
        _size("REPLAY-10M", 4, (8,), 65_536, 10_000_000, replay_only=True),
    )
}


def named_size(name: str) -> Size:
    """The size of that name, in any case.

    Raises:
        TrainerError: there is none.
    """
    if (size := SIZES.get(name.upper())) is None:
        raise TrainerError(f"size {name!r} is unknown; choose from {', '.join(SIZES)}")
    return size


@dataclass(frozen=True)
class BenchSubject:
    """The learning step at a size.

    Attributes:
        overrides: config fields in the place of the size's; ``states`` is the width of a state.
        parts: what the stages ask instead of the trainer's programs.
        say: told when kernels are measured, to be chosen.
    """

    size: Size
    overrides: Mapping[str, object] = field(default_factory=dict)
    parts: Callable[[DqnPrograms], Parts] = lambda programs: programs
    say: Say = lambda _: None

    @property
    def known(self) -> Sequence[Stage]:
        return STAGES

    @property
    def name(self) -> str:
        shapes, hidden = self.shapes, "-".join(map(str, self.config.network.hidden))
        what = f"MLP {hidden}"
        if self.size.replay_only:
            what = "replay alone"
        elif self.config.preset != "dqn":
            what = f"preset {self.config.preset} on {what}"
        return (
            f"{self.size.name}: states {shapes.width}, {what}, batch {shapes.batch:,},"
            f" capacity {shapes.capacity:,}"
        )

    @cached_property
    def states(self) -> int:
        """Width of a state.

        Raises:
            TrainerError: it is no whole number of at least 2.
        """
        states = self.overrides.get("states", self.size.states)
        if not isinstance(states, int) or isinstance(states, bool) or states < 2:
            raise TrainerError(f"states = {states!r} is no width; use a whole number from 2 on")
        return states

    @cached_property
    def config(self) -> Config:
        """The size's config, with the overrides.

        Raises:
            ConfigError: an override does not fit.
            TrainerError: an override would do nothing.
        """
        for name in self.overrides:
            if name in _ELSEWHERE:
                raise TrainerError(
                    f"{name} = {self.overrides[name]!r} has no meaning here: a benchmark takes it"
                    f" from {_ELSEWHERE[name]}; leave it out"
                )
        fields = {k: v for k, v in self.overrides.items() if k != "states"}
        if isinstance(batch := fields.get("learn.batch_size"), int):
            fields.setdefault("loop.start_steps", batch)
        return load_config(None, {**self.size.fields, **fields})

    @cached_property
    def environment(self) -> TabularEnvironment:
        """Lanes whose observations have the size's width; they are never stepped."""
        return chain(self.config.env.lanes, self.config.seed, length=self.states)

    @cached_property
    def network(self) -> QNetwork:
        """The Q network of the size."""
        return QNetwork.of(self.config, self.environment)

    @cached_property
    def shapes(self) -> Shapes:
        """The sizes of every buffer."""
        return Shapes(self.config, self.network, self.config.replay.capacity)

    @cached_property
    def content(self) -> dict[str, NDArray[Any]]:
        """The full replay by buffer name, drawn once."""
        return random_replay(self.shapes)

    def errors(self) -> NDArray[np.float32]:
        """The TD errors [B] that every step of the replay alone writes back: standard normal."""
        rng = np.random.default_rng(self.config.seed + 1)
        return rng.standard_normal(self.shapes.batch, np.float32)

    def program(self, programs: DqnPrograms) -> StepProgram:
        """Stage 0's form of what is timed."""
        learn = programs.learn()
        if not self.size.replay_only:
            return learn
        return replace(
            learn,
            phases=tuple(p for p in learn.phases if p.name in REPLAY_PHASES),
            buffers=tuple(
                replace(b, initial=self.errors) if b.name == "td" else b for b in learn.buffers
            ),
        ).pruned()

    def at(self, stages: StageSet, device: Device) -> BenchRun:
        return BenchRun(self, stages, device)


class BenchRun:
    """A learning step over a full replay, and nothing that collects."""

    def __init__(self, subject: BenchSubject, stages: StageSet, device: Device) -> None:
        self.fusion = FusionChooser(subject.shapes, subject.environment, device, subject.say)
        programs = DqnPrograms(subject.shapes, subject.environment)
        if not subject.size.replay_only:
            programs = DqnPrograms(subject.shapes, subject.environment, self.fusion)
        legacy = subject.program(programs)
        self.subject, self.program = subject, apply(legacy, stages, subject.parts(programs))
        self.workspace = Workspace(device)
        self._budget = budget(legacy, stages)
        looped = apply(round_program("epoch", [(self.program, 1)]), stages, programs)
        self._taken = 0
        try:
            self.workspace.ensure(self.program.buffers)
            if looped.takes_turns:
                self.workspace.ensure(looped.buffers)
            for name, values in subject.content.items():
                self._fill(name, values)
        except BaseException:
            self.workspace.close()
            raise
        timed = max(subject.config.loop.timed_steps, 1)
        self._learn = Runner(self.program, self.workspace, timed_sets=timed)
        self._rounds = Rounds(Runner(looped, self.workspace)) if looped.takes_turns else None

    def _fill(self, name: str, values: NDArray[Any]) -> None:
        """Write `values` wherever the program has them: on the device, on the host, or on both."""
        for place in (name, MIRRORS.get(name, name)):
            if place in self.workspace.buffers:
                self.workspace.write(place, values)

    @property
    def runners(self) -> Mapping[str, Runner]:
        return {"learn": self._learn}

    @property
    def budgets(self) -> Mapping[str, Budget]:
        return {"learn": self._budget}

    def loop_of(self, program: str) -> tuple[Runner, Callable[[int], StepCounts]] | None:
        """The learning step in the device's own loop."""
        if self._rounds is None or program != "learn":
            return None
        return self._rounds.runner, self._take

    def _take(self, steps: int) -> StepCounts:
        assert self._rounds is not None
        self._taken += steps
        return self._rounds.launch(self._learn.index + self._taken)

    def step(self, *, timed: bool = False) -> Mapping[str, StepCounts]:
        return {"learn": self._learn.step(timed=timed)}

    def choices(self) -> NDArray[np.int32]:
        return self.workspace.read("index")

    def parameters(self) -> NDArray[np.float32]:
        return self.workspace.read("replay_leaves" if self.subject.size.replay_only else "theta")

    def close(self) -> None:
        self.workspace.close()


#: What precisions of large products are called in a table.
_PRECISIONS: Mapping[Precision, str] = {"tf32x3": "three TF32 products", "tf32": "TF32"}


def at_precision(subject: BenchSubject, precision: Precision) -> BenchSubject:
    """The subject with its larger products in another precision."""
    return replace(subject, overrides={**subject.overrides, "network.precision": precision})


def tensor_core_steps(subject: BenchSubject, device: Device) -> dict[Precision, ProgramSteps]:
    """The step with every stage on and its larger products on the tensor cores, as candidates.

    One in each precision that they have, if the config asks for float32 and there are such
    products. Whoever asks closes them.
    """
    asked = subject.config.network.precision
    if device.kind != "cuda" or subject.size.replay_only or asked != "float32":
        return {}
    found: dict[Precision, ProgramSteps] = {}
    for precision, words in _PRECISIONS.items():
        other = at_precision(subject, precision)
        run = other.at(ALL, device)
        if not any(_on_tensor_cores(op) for _, op, _ in run.program.all_ops()):
            run.close()
            break
        found[precision] = ProgramSteps(f"{set_label(other, ALL)}, {words}", run, "learn")
    return found


def _on_tensor_cores(op: Op) -> bool:
    if not isinstance(op, MatmulOp | MatmulGroup):
        return False
    members = op.in_launch if isinstance(op, MatmulGroup) else (op,)
    if all(m.spec.is_long for m in members):
        return False
    sizes = [(m.m, m.n, m.k) for m in members]
    return is_wide(sizes) or any(is_large(*size) for size in sizes)
