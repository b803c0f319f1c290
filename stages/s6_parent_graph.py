"""Stage 6, ``parent-graph``: the step is ONE graph launch.

The phases' graphs become children of one parent, in order. Boundary events become nodes between
them, in the timed form of the parent; the plain form has none, because event nodes cost more than
many a phase (13 of them added about 33 us to a 150 us step on an H200).
"""

from __future__ import annotations

from dataclasses import replace

from onegraph.stages.budget import Limit
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
    parent = GraphLaunch(program.name, tuple(body), group="graph")
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
