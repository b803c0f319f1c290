"""The stages in order, the sets of them that are valid, and what a set does to a program.

The functions take the stages that there are as `known`: those of this package, or your own list.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from onegraph.stages import (
    s0_legacy,
    s1_gpu_replay,
    s2_philox_per,
    s3_phase_events,
    s4_gpu_counters,
    s5_child_graphs,
    s6_parent_graph,
    s7_fused_phases,
    s8_epoch_graph,
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
    s7_fused_phases.STAGE,
    s8_epoch_graph.STAGE,
)

#: Numbers of the stages beyond 0 that are on.
StageSet = frozenset[int]

ALL: StageSet = frozenset(stage.number for stage in STAGES[1:])
NONE: StageSet = frozenset()


class StageSetError(ValueError):
    """Unknown stages, or a set that lacks what its members require."""


def by_number(number: int, known: Sequence[Stage] = STAGES) -> Stage:
    """The stage with that number."""
    for stage in known:
        if stage.number == number:
            return stage
    raise StageSetError(
        f"stage {number} is unknown; the stages are"
        f" {', '.join(f'{s.number} {s.name}' for s in known)}"
    )


def missing(stages: StageSet, known: Sequence[Stage] = STAGES) -> dict[str, tuple[str, ...]]:
    """For each stage of the set that lacks others: its name, and the names of what it lacks."""
    lacks = {}
    for number in sorted(stages):
        stage = by_number(number, known)
        if absent := [by_number(n, known).name for n in stage.requires if n not in stages]:
            lacks[stage.name] = tuple(absent)
    return lacks


def require_valid(stages: StageSet, known: Sequence[Stage] = STAGES) -> StageSet:
    """`stages`, or `StageSetError` that names what is missing."""
    if lacks := missing(stages, known):
        reasons = "; ".join(f"{name} needs {' and '.join(what)}" for name, what in lacks.items())
        raise StageSetError(
            f"these stages can't be on together: {reasons}; add what is needed, or leave out what"
            " needs it"
        )
    return stages


def up_to(number: int, known: Sequence[Stage] = STAGES) -> StageSet:
    """The stages beyond 0 whose number is at most `number`."""
    return frozenset(stage.number for stage in known if 0 < stage.number <= number)


def step_stages(known: Sequence[Stage] = STAGES) -> tuple[Stage, ...]:
    """The stages that rewrite a step; the others are about the loop around it."""
    return tuple(stage for stage in known if stage.rewrites == "step")


def refusals(
    program: StepProgram, stages: StageSet, known: Sequence[Stage] = STAGES
) -> dict[int, str]:
    """Why stages of the set can't be on with `program`, by number, as the rest has left it."""
    on = (s for s in known if s.number in stages and s.is_about(program))
    return {stage.number: reason for stage in on if (reason := stage.refusal(program))}


def valid_sets(known: Sequence[Stage] = STAGES) -> tuple[StageSet, ...]:
    """Every valid set, smallest first."""
    numbers = sorted(stage.number for stage in known if stage.number)
    candidates = (
        frozenset(c) for size in range(len(numbers) + 1) for c in combinations(numbers, size)
    )
    return tuple(s for s in candidates if not missing(s, known))


def is_exact(stages: StageSet, known: Sequence[Stage] = STAGES) -> bool:
    """Whether every stage of the set keeps every bit."""
    return all(by_number(number, known).exact for number in stages)


def exact_sets(known: Sequence[Stage] = STAGES) -> tuple[StageSet, ...]:
    """The valid sets whose numbers are those of stage 0, bit for bit; smallest first."""
    return tuple(s for s in valid_sets(known) if is_exact(s, known))


def apply(
    program: StepProgram, stages: StageSet, parts: Parts, known: Sequence[Stage] = STAGES
) -> StepProgram:
    """`program` (of stage 0) with the rewrites of `stages` that are about it, in their order."""
    require_valid(stages, known)
    for stage in known:
        if (stage.number in stages or stage.number == 0) and stage.is_about(program):
            program = stage.rewrite(program, parts)
    return program


def budget(program: StepProgram, stages: StageSet, known: Sequence[Stage] = STAGES) -> Budget:
    """What a step may do with `stages` on: every stage's limits. `program` is that of stage 0."""
    require_valid(stages, known)
    on = [s for s in known if s.number in stages and s.is_about(program)]
    return Budget(
        limits=tuple(limit for s in on for limit in s.budget(program)),
        allowances=tuple(limit for s in on for limit in s.allowance(program)),
    )


def stage_names(stages: StageSet, known: Sequence[Stage] = STAGES) -> str:
    """The stages that are on, in words: ``1 gpu-replay, 3 phase-events``; else the first."""
    on = [stage for stage in known if stage.number in stages] or known[:1]
    return ", ".join(f"{stage.number} {stage.name}" for stage in on)


def format_set(stages: StageSet) -> str:
    """Short form: ``0``, ``0-6``, ``0-6,8``, ``0,1,2,4``."""
    numbers = [0, *sorted(stages)]
    run = next((i for i, n in enumerate(numbers) if i != n), len(numbers))
    if run == len(numbers) > 2 or run > 4:
        return ",".join([f"0-{run - 1}", *map(str, numbers[run:])])
    return ",".join(map(str, numbers))
