"""Stage 5, ``child-graphs``: each phase becomes one graph.

Step 0 runs ungraphed, which loads every kernel and fixes every matmul plan; then each phase is
captured. A phase without work has no child. The pass works on any program whose phases hold only
work that a graph can hold.
"""

from __future__ import annotations

from dataclasses import replace

from onegraph.stages.budget import Limit
from onegraph.stages.program import (
    LAUNCHING,
    GraphLaunch,
    Op,
    Parts,
    Phase,
    ProgramError,
    RecordEvent,
    StepProgram,
    changed,
    graphable,
)
from onegraph.stages.stage import Stage

#: What happens once, at the first step, and again only when a buffer moved.
REBUILDING = ("capture", "captured", "instantiate", "module_load")


def graphed(op: Op) -> Op:
    """`op` from the module of what is launched in graphs."""
    return replace(op, module="graphed") if isinstance(op, LAUNCHING) else op


def _as_graph(program: StepProgram, phase: Phase) -> Phase:
    body = [op for op in phase.ops if not isinstance(op, RecordEvent)]
    for op in body:
        if not graphable(op):
            raise ProgramError(
                f"program {program.name}, phase {phase.name}: {op.label} can't be captured into a"
                " graph; move it off the step first"
            )
    if not body:
        return phase
    graph = GraphLaunch(phase.name, tuple(changed(op, graphed) for op in body), group="graph")
    first = phase.ops.index(body[0])
    before = [op for op in phase.ops[:first] if isinstance(op, RecordEvent)]
    after = [op for op in phase.ops[first:] if isinstance(op, RecordEvent)]
    return replace(phase, ops=(*before, graph, *after))


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Wrap the work of each phase in a graph of its own."""
    del parts
    return replace(program, phases=tuple(_as_graph(program, p) for p in program.phases))


def budget(program: StepProgram) -> tuple[Limit, ...]:
    """No launch outside a graph, no graph made anew; one graph launch a phase at most."""
    outside = tuple(
        Limit(kind, 0, stage=STAGE.name) for kind in ("launch", "matmul", "memset", "dtod")
    )
    rebuilt = tuple(Limit(kind, 0, stage=STAGE.name) for kind in REBUILDING)
    return (*outside, *rebuilt, Limit("graph_launch", len(program.phases), stage=STAGE.name))


STAGE = Stage(
    number=5,
    name="child-graphs",
    summary="each phase captured into a graph; one graph launch a phase",
    rewrite=rewrite,
    requires=(4,),
    budget=budget,
)
