"""A loop that is one program, as a `Subject`: all that most loops need to say about themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from onegraph.kernels.device.base import Device
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.budget import Budget
from onegraph.stages.program import Fragment, Merge, Parts, ProgramError, StepProgram
from onegraph.stages.registry import StageSet, apply, budget, step_stages
from onegraph.stages.runner import Runner
from onegraph.stages.stage import Stage
from onegraph.stages.workspace import Workspace

#: Timed steps that keep their events until somebody reads them.
TIMED_SETS = 8


class NoParts:
    """For a loop whose stages bring their own ops: nobody may ask it for a replacement."""

    def fragment(self, stage: str, program: str, group: str) -> Fragment:
        raise ProgramError(
            f"stage {stage} asks for the part of group {group} in program {program}, and this loop"
            " has none; give the subject `parts`, or leave the stage out of `known`"
        )

    def merges(self, program: str) -> tuple[Merge, ...]:
        """None: every phase stays as it is."""
        del program
        return ()


class ProgramRun:
    """A program at a set of stages on a device, with its arrays allocated."""

    def __init__(self, subject: ProgramSubject, stages: StageSet, device: Device) -> None:
        self.subject = subject
        program = apply(subject.program, stages, subject.parts, subject.known)
        for name in (subject.choices, subject.parameters):
            if name not in program.buffer:
                raise ProgramError(
                    f"program {program.name} has no buffer {name!r} at these stages, which the"
                    f" subject compares; it has {', '.join(sorted(program.buffer))}"
                )
        self.workspace = Workspace(device)
        try:
            self.workspace.ensure(program.buffers)
            self.runner = Runner(program, self.workspace, timed_sets=TIMED_SETS)
        except BaseException:
            self.workspace.close()
            raise
        self.runners: Mapping[str, Runner] = {program.name: self.runner}
        self.budgets: Mapping[str, Budget] = {
            program.name: budget(subject.program, stages, subject.known)
        }

    def step(self, *, timed: bool = False) -> Mapping[str, StepCounts]:
        return {self.runner.program.name: self.runner.step(timed=timed)}

    def choices(self) -> NDArray[Any]:
        return self.workspace.read(self.subject.choices)

    def parameters(self) -> NDArray[Any]:
        return self.workspace.read(self.subject.parameters)

    def close(self) -> None:
        self.workspace.close()


@dataclass(frozen=True)
class ProgramSubject:
    """One program and the stages that there are for it.

    Attributes:
        program: the loop's step as it is before any stage.
        choices: the buffer that holds what a step drew or decided.
        parameters: the buffer that holds the numbers that the loop works on.
        known: the loop's stages in order, its legacy stage first.
        parts: answers the stages that ask for a replacement; a stage that brings its own ops does
            not ask.
    """

    name: str
    program: StepProgram
    choices: str
    parameters: str
    known: Sequence[Stage] = step_stages()
    parts: Parts = field(default_factory=NoParts)

    def at(self, stages: StageSet, device: Device) -> ProgramRun:
        return ProgramRun(self, stages, device)
