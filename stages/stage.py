"""A stage: a numbered, named rewrite of a program, with what it promises about the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from onegraph.stages.budget import Limit
from onegraph.stages.program import Parts, StepProgram

Rewrite = Callable[[StepProgram, Parts], StepProgram]
Promise = Callable[[StepProgram], tuple[Limit, ...]]


def _promises_nothing(program: StepProgram) -> tuple[Limit, ...]:
    del program
    return ()


def _never(program: StepProgram) -> str:
    del program
    return ""


@dataclass(frozen=True)
class Stage:
    """One stage of the migration.

    Attributes:
        number, name: both select it on the command line.
        requires: numbers of the stages that must be on with it.
        summary: what the step does once it is on, in one line.
        rewrite: the pass itself.
        budget: limits on a step of the given (stage 0) program in steady state.
        allowance: calls it may add on a timed step, beyond what the other stages allow.
        exact: whether it keeps every bit of what the loop computes. One that does not agrees to
            rounding (`onegraph.stages.difference`), and gives the same bits in every run.
        rewrites: the programs that it is about: those of a step, or that of a round of them
            (`onegraph.stages.round_program`); it leaves the others as they are.
        refusal: why it can't be on with a program of that kind, as the stages before it have left
            that; empty if it can.
    """

    number: int
    name: str
    summary: str
    rewrite: Rewrite
    requires: tuple[int, ...] = ()
    budget: Promise = _promises_nothing
    allowance: Promise = _promises_nothing
    exact: bool = True
    rewrites: Literal["step", "round"] = "step"
    refusal: Callable[[StepProgram], str] = _never

    def is_about(self, program: StepProgram) -> bool:
        """Whether it rewrites and limits a program of that kind."""
        return (self.rewrites == "round") == (program.scope == "round")
