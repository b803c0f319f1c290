"""Wrapping any program of graphable ops in graphs changes no bit of any buffer."""

from dataclasses import replace

import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ops import BUFFERS, contents, ops

from onegraph.stages import (
    GraphLaunch,
    Phase,
    StepProgram,
    s3_phase_events,
    s5_child_graphs,
    s6_parent_graph,
)
from onegraph.stages.program import Branches, Op, ProgramError


@st.composite
def bodies(draw: st.DrawFn) -> list[Op]:
    """Ops of a phase, or branches where they hold together."""
    body = draw(st.lists(ops(), max_size=4))
    at = draw(st.integers(1, max(1, len(body) - 1)))
    try:
        return [Branches((tuple(body[:at]), tuple(body[at:])))]
    except ProgramError:
        return body


programs = st.lists(bodies(), min_size=1, max_size=4).map(
    lambda phases: StepProgram(
        "random",
        "learn",
        tuple(Phase(f"p{i}", tuple(body)) for i, body in enumerate(phases)),
        BUFFERS,
    )
)


@settings(max_examples=40, deadline=None)
@given(programs, st.booleans(), st.booleans())
def test_graphs_change_no_bit(program: StepProgram, events: bool, timed: bool) -> None:
    parts = toy.Toy()
    plain = contents(program, timed=timed)
    if events:
        program = s3_phase_events.rewrite(program, parts)
    children = s5_child_graphs.rewrite(program, parts)
    parent = s6_parent_graph.rewrite(children, parts)
    assert contents(program, timed=timed) == plain
    assert contents(children, timed=timed) == plain
    assert contents(parent, timed=timed) == plain
    assert sum(parent.calls().values()) == 1
    assert contents(swapped(parent), timed=timed) == plain


def swapped(program: StepProgram) -> StepProgram:
    """The program with the branches of each fork in the other order."""

    def turned(op: Op) -> Op:
        if isinstance(op, Branches):
            return replace(op, branches=op.branches[::-1])
        return replace(op, body=tuple(map(turned, op.body))) if isinstance(op, GraphLaunch) else op

    return replace(
        program, phases=tuple(replace(p, ops=tuple(map(turned, p.ops))) for p in program.phases)
    )
