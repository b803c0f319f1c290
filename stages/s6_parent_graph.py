"""Stage 6, ``parent-graph``: the step is ONE graph launch.

The phases' graphs become children of one parent, in order, or side by side where they do not wait
for one another (`Phase.after`). Boundary events become nodes between them, in the timed form of the
parent; the plain form has none, because event nodes cost more than many a phase (13 of them added
about 33 us to a 150 us step on an H200). In the timed form the children run one by one in any case:
a boundary lies behind all that comes before it.
"""

from __future__ import annotations

from dataclasses import replace

from onegraph.stages.budget import Limit
from onegraph.stages.children import waits_of_phases, with_waits
from onegraph.stages.program import (
    GraphLaunch,
    Op,
    Parts,
    Phase,
    ProgramError,
    RecordEvent,
    StepProgram,
)
from onegraph.stages.stage import Stage


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Compose the phases' graphs into one parent."""
    del parts
    body: list[Op] = []
    for name, op in program.ops():
        if not isinstance(op, (GraphLaunch, RecordEvent)):
            raise ProgramError(
                f"program {program.name}, phase {name}: {op.label} stands outside a graph, so the"
                " step can't be one graph launch"
            )
        body.append(op)
    waits = waits_of_phases(
        program.phases, lambda phase: any(isinstance(op, GraphLaunch) for op in phase.ops)
    )
    try:
        children = with_waits(body, waits)
    except ProgramError as error:
        raise ProgramError(f"program {program.name}: {error}") from error
    parent = GraphLaunch(program.name, children, group="graph")
    return replace(program, phases=(Phase(program.name, (parent,)),))


def budget(program: StepProgram) -> tuple[Limit, ...]:
    """Exactly one graph launch."""
    del program
    return (Limit("graph_launch", 1, 1, stage=STAGE.name),)


STAGE = Stage(
    number=6,
    name="parent-graph",
    summary="one parent graph; the host launches it and reads pinned scalars",
    rewrite=rewrite,
    requires=(5,),
    budget=budget,
)
