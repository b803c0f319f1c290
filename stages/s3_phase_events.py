"""Stage 3, ``phase-events``: always-on timing by CUDA events at the phases' boundaries.

The events are recorded on timed steps only and read once an epoch, after the epoch's own
synchronisation. The pass works on any program: it needs nothing from its owner.
"""

from __future__ import annotations

from dataclasses import replace

from onegraph.stages.budget import Limit
from onegraph.stages.program import Parts, RecordEvent, StepProgram
from onegraph.stages.stage import Stage


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Record an event before each phase and one after the last."""
    del parts
    if not program.phases:
        return program
    phases = [
        replace(phase, ops=(RecordEvent(i, phase.name, group="events"), *phase.ops))
        for i, phase in enumerate(program.phases)
    ]
    end = RecordEvent(len(phases), "", group="events")
    phases[-1] = replace(phases[-1], ops=(*phases[-1].ops, end))
    return replace(program, phases=tuple(phases))


def allowance(program: StepProgram) -> tuple[Limit, ...]:
    """On a timed step: one record, or one event-set call of a graph, at each boundary."""
    boundaries = len(program.phases) + 1
    return tuple(Limit(k, boundaries, stage=STAGE.name) for k in ("event_record", "event_set"))


STAGE = Stage(
    number=3,
    name="phase-events",
    summary="CUDA events at the phase boundaries of timed steps, read once an epoch",
    rewrite=rewrite,
    allowance=allowance,
)
