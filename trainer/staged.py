"""The trainer's programs at a set of stages, and the stages that can't be on with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onegraph.stages.budget import Budget
from onegraph.stages.program import ProgramError, StepProgram
from onegraph.stages.registry import (
    STAGES,
    StageSet,
    StageSetError,
    apply,
    budget,
    by_number,
    refusals,
)
from onegraph.trainer.program import DqnPrograms


@dataclass(frozen=True)
class StagedPrograms:
    """What a trainer runs.

    Attributes:
        stages: those that are on.
        refused: those that were asked for and can't be on, with the reason.
        collect: without a phase where nothing is collected.
        epoch: the program of a round, where the device loops over it; else ``None``.
        budgets: what a step of each may do, by program name.
    """

    stages: StageSet
    refused: Mapping[int, str]
    learn: StepProgram
    collect: StepProgram
    epoch: StepProgram | None
    budgets: Mapping[str, Budget]

    @property
    def all(self) -> tuple[StepProgram, ...]:
        """The programs that there are: an offline run has none that collects."""
        found = (self.learn, self.collect, self.epoch)
        return tuple(program for program in found if program is not None and program.phases)


def require_possible(refused: Mapping[int, str], optional: StageSet) -> None:
    """Raise `StageSetError` for a stage of `refused` that is not among those to leave out."""
    for number, reason in refused.items():
        if number not in optional:
            name = by_number(number).name
            raise StageSetError(
                f"stage {number} {name} can't be on with this config: {reason}; leave it out"
                f" (all,-{name})"
            )


def staged(programs: DqnPrograms, asked: StageSet) -> StagedPrograms:
    """The programs with the stages of `asked` that can be on."""
    learn, collect = programs.learn(), programs.collect()
    budgets = {p.name: budget(p, asked) for p in (learn, collect)}
    learn, collect = (apply(p, asked, programs) if p.phases else p for p in (learn, collect))
    epoch: StepProgram | None = None
    try:
        epoch = programs.epoch(collect, learn)
        refused = refusals(epoch, asked)
    except ProgramError as error:  # too long a round: there is no such program
        about = (s.number for s in STAGES if s.rewrites == "round")
        refused = {number: str(error) for number in about if number in asked}
    stages = frozenset(asked - refused.keys())
    if epoch is not None:
        budgets["epoch"] = budget(epoch, stages)
        epoch = apply(epoch, stages, programs)
    if epoch is None or not epoch.takes_turns:
        epoch = None
        budgets.pop("epoch", None)
    return StagedPrograms(stages, refused, learn, collect, epoch, budgets)
