"""A round: whole steps of several programs, one after another, as a program of its own.

The loop around the steps is a program too, then, and a stage can rewrite it
(`onegraph.stages.s8_epoch_graph`). A round is made of programs that the stages before have
rewritten already. What it does is what its steps do, so it takes no times: a step that is to be
timed is run by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onegraph.stages.program import (
    GraphLaunch,
    Op,
    Phase,
    ProgramError,
    RecordEvent,
    StepProgram,
    merge_buffers,
)

#: Steps of all programs together that a round may have: each is there as often as it is run.
MOST_STEPS = 64


def round_program(name: str, steps: Sequence[tuple[StepProgram, int]]) -> StepProgram:
    """The program of a round: `steps` are programs, and how often each is run.

    Its phases are named after the programs.

    Raises:
        ProgramError: no step at all, or more than `MOST_STEPS`.
    """
    count = sum(times for _, times in steps)
    if not 0 < count <= MOST_STEPS:
        each = ", ".join(f"{times:,} of {program.name}" for program, times in steps)
        raise ProgramError(
            f"a round of {count:,} steps ({each}) can't be one program: that takes 1 to"
            f" {MOST_STEPS}"
        )
    phases = []
    for program, times in steps:
        ops = tuple(
            _untimed(op) for p in program.phases for op in p.ops if not isinstance(op, RecordEvent)
        )
        phases.append(Phase(program.name, ops * times))
    buffers = merge_buffers(*(program.buffers for program, _ in steps))
    return StepProgram(name, "round", tuple(phases), buffers).pruned()


def _untimed(op: Op) -> Op:
    if not isinstance(op, GraphLaunch):
        return op
    return replace(
        op, body=tuple(_untimed(inner) for inner in op.body if not isinstance(inner, RecordEvent))
    )
