"""The stages in order, the sets of them that are valid, and what a set does to a program."""

from __future__ import annotations

from itertools import combinations

from onegraph.stages import (
    s0_legacy,
    s1_gpu_replay,
    s2_philox_per,
    s3_phase_events,
    s4_gpu_counters,
    s5_child_graphs,
    s6_parent_graph,
)
from onegraph.stages.budget import Budget
from onegraph.stages.program import Parts, StepProgram
from onegraph.stages.stage import Stage

STAGES: tuple[Stage, ...] = (
    s0_legacy.STAGE,
    s1_gpu_replay.STAGE,
    s2_philox_per.STAGE,
    s3_phase_events.STAGE,
    s4_gpu_counters.STAGE,
    s5_child_graphs.STAGE,
    s6_parent_graph.STAGE,
)

#: Numbers of the stages beyond 0 that are on.
StageSet = frozenset[int]

ALL: StageSet = frozenset(stage.number for stage in STAGES[1:])
NONE: StageSet = frozenset()


class StageSetError(ValueError):
    """Unknown stages, or a set that lacks what its members require."""


def by_number(number: int) -> Stage:
    """The stage with that number."""
    for stage in STAGES:
        if stage.number == number:
            return stage
    raise StageSetError(
        f"stage {number} is unknown; the stages are"
        f" {', '.join(f'{s.number} {s.name}' for s in STAGES)}"
    )


def missing(stages: StageSet) -> dict[str, tuple[str, ...]]:
    """For each stage of the set that lacks others: its name, and the names of what it lacks."""
    lacks = {}
    for number in sorted(stages):
        stage = by_number(number)
        if absent := [by_number(n).name for n in stage.requires if n not in stages]:
            lacks[stage.name] = tuple(absent)
    return lacks


def require_valid(stages: StageSet) -> StageSet:
    """`stages`, or `StageSetError` that names what is missing."""
    if lacks := missing(stages):
        reasons = "; ".join(f"{name} needs {' and '.join(what)}" for name, what in lacks.items())
        raise StageSetError(
            f"these stages can't be on together: {reasons}; add what is needed, or leave out what"
            " needs it"
        )
    return stages


def valid_sets() -> tuple[StageSet, ...]:
    """Every valid set, smallest first."""
    numbers = sorted(ALL)
    candidates = (
        frozenset(c) for size in range(len(numbers) + 1) for c in combinations(numbers, size)
    )
    return tuple(s for s in candidates if not missing(s))


def apply(program: StepProgram, stages: StageSet, parts: Parts) -> StepProgram:
    """`program` (of stage 0) with the rewrites of `stages`, in their order."""
    require_valid(stages)
    for stage in STAGES:
        if stage.number in stages or stage.number == 0:
            program = stage.rewrite(program, parts)
    return program


def budget(program: StepProgram, stages: StageSet) -> Budget:
    """What a step may do with `stages` on: every stage's limits. `program` is that of stage 0."""
    require_valid(stages)
    on = [s for s in STAGES if s.number in stages]
    return Budget(
        limits=tuple(limit for s in on for limit in s.budget(program)),
        allowances=tuple(limit for s in on for limit in s.allowance(program)),
    )


def format_set(stages: StageSet) -> str:
    """Short form: ``0``, ``0-6``, ``0,1,2,4``."""
    numbers = [0, *sorted(stages)]
    if len(numbers) > 2 and numbers == list(range(numbers[-1] + 1)):
        return f"0-{numbers[-1]}"
    return ",".join(map(str, numbers))
