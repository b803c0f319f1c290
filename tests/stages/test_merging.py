"""Stage 7 on a loop that is no DQN: whose place a merge takes, and what it refuses."""

from __future__ import annotations

import pytest
import toy

from onegraph.kernels.device import HostDevice
from onegraph.stages import STAGES, Buffer, Fragment, ProgramError, Runner, Workspace, apply, budget
from onegraph.stages.program import GraphLaunch, Merge, RecordEvent, StepProgram
from onegraph.stages.registry import ALL

SIX = ALL - {7}
UNTIMED = ALL - {3}


class Merging(toy.Toy):
    """The toy, some of whose neighbouring phases one fragment does together."""

    def __init__(self, *merges: Merge) -> None:
        super().__init__()
        self._merges = merges

    def merges(self, program: str) -> tuple[Merge, ...]:
        return self._merges if program == "power" else ()


def merge(name: str, *phases: str, buffers: tuple[Buffer, ...] = ()) -> Merge:
    """What the phases do anyway, as one fragment: a merge that changes no number."""
    parts = toy.Toy()
    program = apply(parts.program(), SIX - {3}, parts)
    ((_, parent),) = program.ops()
    ops = [
        op
        for graph in parent.body
        if isinstance(graph, GraphLaunch) and graph.name in phases
        for op in graph.body
    ]
    return Merge(name, phases, Fragment(tuple(ops), buffers))


def body(program: StepProgram) -> list[str]:
    """The parent's children by name, and boundaries by what they stand before."""
    ((_, parent),) = program.ops()
    return [
        f"{op.index}|{op.before}" if isinstance(op, RecordEvent) else op.name for op in parent.body
    ]


def at(stages: frozenset[int], *merges: Merge) -> StepProgram:
    parts = Merging(*merges)
    return apply(parts.program(), stages, parts)


def test_a_merge_stands_where_its_phases_stood() -> None:
    merged = merge("front", "count", "multiply")
    assert body(at(UNTIMED - {7})) == ["draw", "count", "multiply", "publish", "raise"]
    assert body(at(UNTIMED, merged)) == ["draw", "front", "publish", "raise"]


def test_boundaries_are_numbered_anew() -> None:
    """Three phases behind one boundary; the idle phase's boundary is within what is merged."""
    merged = merge("back", "publish", "idle", "raise")
    assert body(at(ALL, merged)) == [
        *("0|draw", "draw", "1|count", "count", "2|multiply", "multiply", "3|back", "back", "4|"),
    ]


def test_two_merges_in_one_step() -> None:
    merges = merge("front", "draw", "count"), merge("back", "publish", "idle", "raise")
    assert body(at(UNTIMED, *merges)) == ["front", "multiply", "back"]


def test_the_numbers_and_the_budget_stay() -> None:
    merged = merge("front", "draw", "count", "multiply")
    for timed in (False, True):
        program = at(ALL, merged)
        assert toy.trajectory(program, 6, timed=timed) == toy.trajectory(
            toy.Toy().program(), 6, timed=timed
        )
        budget(toy.Toy().program(), ALL).check(program.calls(timed=timed), program, timed=timed)


def test_times_are_those_of_the_merged_phases() -> None:
    runner = Runner(at(ALL, merge("front", "draw", "count")), Workspace(HostDevice()))
    runner.step()
    runner.step(timed=True)
    assert list(runner.timings().phases) == ["front", "multiply", "publish", "idle", "raise"]


def test_buffers_come_and_go_with_what_names_them() -> None:
    own = Buffer("scratch", (4,), "f32")
    program = at(ALL, merge("front", "draw", "count", buffers=(own,)))
    assert "scratch" not in program.buffer  # nothing names it
    assert set(program.buffer) == set(at(SIX).buffer)


def test_nothing_to_merge_leaves_the_program() -> None:
    assert at(ALL) == at(SIX)


def test_phases_that_are_no_neighbours_are_refused() -> None:
    with pytest.raises(ProgramError, match="phase 'count' stands between those that 'odd' merges"):
        at(ALL, merge("odd", "draw", "multiply"))


def test_phases_that_are_not_there_are_refused() -> None:
    with pytest.raises(ProgramError, match="none of the phases fly, swim has a graph to merge"):
        at(ALL, Merge("odd", ("fly", "swim"), Fragment(())))


def test_a_step_that_is_no_single_graph_is_refused() -> None:
    parts = Merging(merge("front", "draw", "count"))
    with pytest.raises(ProgramError, match="not one graph launch, in which phases could be merged"):
        STAGES[7].rewrite(parts.program(), parts)
