"""Stage 7, ``fused-phases``: runs of phases by fewer, larger kernels, or in less of an order.

Once the host is out of the step, what is left is arithmetic and the latency of its nodes. The
program's owner names runs of consecutive phases (`Merge`), or none where that is not faster at the
sizes at hand; each run becomes one child of the parent graph. In it kernels of the owner's do the
phases together, or the phases' own ops stand regrouped by what they depend on. Kernels may add sums
in another order than those that they replace: results then agree to rounding, and are the same bits
from run to run.
"""

from __future__ import annotations

from dataclasses import replace

from onegraph.stages.children import children_of, waits_of_children, with_waits
from onegraph.stages.program import (
    Buffer,
    GraphLaunch,
    Merge,
    Op,
    Parts,
    Phase,
    ProgramError,
    RecordEvent,
    StepProgram,
    changed,
    graphed,
)
from onegraph.stages.stage import Stage


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Put the merged phases' kernels in the place of their graphs, in the parent."""
    merges = parts.merges(program.name)
    if not merges:
        return program
    parent = _parent(program)
    body = parent.body
    buffers = dict(program.buffer)
    for merge in merges:
        body, own = _merged(program, body, merge)
        buffers.update((b.name, b) for b in own)
    body = tuple(
        replace(op, index=index) if isinstance(op, RecordEvent) else op
        for op, index in zip(body, _event_indices(body), strict=True)
    )
    phase = Phase(program.name, (replace(parent, body=body),))
    return StepProgram(program.name, program.scope, (phase,), tuple(buffers.values())).pruned()


def _parent(program: StepProgram) -> GraphLaunch:
    ops = [op for phase in program.phases for op in phase.ops]
    if len(ops) != 1 or not isinstance(ops[0], GraphLaunch):
        raise ProgramError(
            f"program {program.name}: its step is {len(ops)} ops and not one graph launch, in which"
            " phases could be merged"
        )
    return ops[0]


def _merged(
    program: StepProgram, body: tuple[Op, ...], merge: Merge
) -> tuple[tuple[Op, ...], tuple[Buffer, ...]]:
    """`body` with one graph where the phases of `merge` had theirs, and that graph's buffers."""
    inside = [i for i, op in enumerate(body) if _phase(op) in merge.phases]
    graphs = [op for i in inside if isinstance(op := body[i], GraphLaunch)]
    if not graphs:
        raise ProgramError(
            f"program {program.name}: none of the phases {', '.join(merge.phases)} has a graph to"
            f" merge into {merge.name!r}"
        )
    first, last = inside[0], inside[-1]
    if stray := [_phase(op) for op in body[first : last + 1] if _phase(op) not in merge.phases]:
        raise ProgramError(
            f"program {program.name}: phase {stray[0]!r} stands between those that {merge.name!r}"
            " merges; only neighbours can be merged"
        )
    fragment = merge.of(tuple(op for graph in graphs for op in graph.body))
    graph = GraphLaunch(
        merge.name, tuple(changed(op, graphed) for op in fragment.ops), group="graph"
    )
    event = body[first]
    begins = (replace(event, before=merge.name),) if isinstance(event, RecordEvent) else ()
    merged = (*body[:first], *begins, graph, *body[last + 1 :])
    gone = {op.name for op in graphs}
    waits: dict[str, set[str]] = {merge.name: set()}
    for name, names in waits_of_children(children_of(body)).items():
        mine = {merge.name if n in gone else n for n in names}
        waits.setdefault(merge.name if name in gone else name, set()).update(mine)
    waits[merge.name].discard(merge.name)
    try:
        return with_waits(merged, waits), fragment.buffers
    except ProgramError as error:
        raise ProgramError(f"program {program.name}, {merge.name!r}: {error}") from error


def _phase(op: Op) -> str:
    """The phase that a child, or the boundary before it, is of; empty for the last boundary."""
    if isinstance(op, RecordEvent):
        return op.before
    return op.name if isinstance(op, GraphLaunch) else ""


def _event_indices(body: tuple[Op, ...]) -> list[int]:
    """Of each boundary its place among them, and of what follows it."""
    count, indices = -1, []
    for op in body:
        count += isinstance(op, RecordEvent)
        indices.append(count)
    return indices


STAGE = Stage(
    number=7,
    name="fused-phases",
    summary="runs of phases by fewer, larger kernels or side by side, where that is faster",
    rewrite=rewrite,
    requires=(6,),
    exact=False,
)
