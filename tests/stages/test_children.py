"""Phases that do not wait for one another: children of the parent that run at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ops import BUFFERS, contents, ops

from onegraph.kernels.device import HostDevice
from onegraph.stages import (
    Buffer,
    Fragment,
    GraphLaunch,
    Phase,
    ProgramError,
    Ref,
    Runner,
    StepProgram,
    Workspace,
    s3_phase_events,
    s5_child_graphs,
    s6_parent_graph,
    s7_fused_phases,
)
from onegraph.stages.children import children_of, places, waits_of_children
from onegraph.stages.dag import dependences
from onegraph.stages.program import Copy, Memset, Merge, Op, work

NAMES = "abcd"


def zero(name: str) -> Memset:
    return Memset(Ref(name))


def copy(to: str, of: str) -> Copy:
    return Copy(Ref(to), Ref(of), "dtod")


def program(*phases: Phase) -> StepProgram:
    return StepProgram("p", "learn", phases, tuple(Buffer(n, (4,), "f32") for n in NAMES))


def parent(made: StepProgram, *, timed: bool = False) -> GraphLaunch:
    parts = toy.Toy()
    if timed:
        made = s3_phase_events.rewrite(made, parts)
    composed = s6_parent_graph.rewrite(s5_child_graphs.rewrite(made, parts), parts)
    ((_, op),) = composed.ops()
    assert isinstance(op, GraphLaunch)
    return op


def afters(graph: GraphLaunch) -> dict[str, tuple[str, ...] | None]:
    return {child.name: child.after for child in children_of(graph.body)}


SIDE_BY_SIDE = (
    Phase("first", (zero("a"),)),
    Phase("left", (copy("b", "a"),)),
    Phase("right", (copy("c", "a"),), after=("first",)),
    Phase("last", (copy("d", "b"), copy("d", "c")), after=("left", "right")),
)


def test_a_phase_waits_for_the_one_before_it() -> None:
    graph = parent(program(*(replace(phase, after=None) for phase in SIDE_BY_SIDE)))
    assert set(afters(graph).values()) == {None}
    assert places(children_of(graph.body)) is None


def test_or_for_those_that_it_names() -> None:
    graph = parent(program(*SIDE_BY_SIDE))
    assert afters(graph) == {
        "first": None,
        "left": None,
        "right": ("first",),
        "last": ("left", "right"),
    }
    assert places(children_of(graph.body)) == [(), (0,), (0,), (1, 2)]


def test_what_follows_from_others_is_left_out() -> None:
    last = replace(SIDE_BY_SIDE[3], after=("first", "left", "right"))
    graph = parent(program(*SIDE_BY_SIDE[:3], last))
    assert afters(graph)["last"] == ("left", "right")


def test_a_phase_without_work_is_stood_in_for_by_what_it_waits_for() -> None:
    empty = Phase("empty", (), after=("first",))
    phases = (*SIDE_BY_SIDE[:2], empty, replace(SIDE_BY_SIDE[2], after=("empty",)), SIDE_BY_SIDE[3])
    assert afters(parent(program(*phases)))["right"] == ("first",)
    idle = Phase("idle", ())
    assert afters(parent(program(idle, *SIDE_BY_SIDE)))["left"] is None


def test_it_prints_what_is_waited_for() -> None:
    made = program(*SIDE_BY_SIDE)
    assert "phase right after first" in made.describe()
    assert "phase left\n" in made.describe()
    heads = [line for line in parent(made).lines() if "graph_launch" in line]
    assert [line.strip() for line in heads[1:]] == [
        "graph_launch first {",
        "graph_launch left {",
        "graph_launch right after first {",
        "graph_launch last after left, right {",
    ]


@pytest.mark.parametrize("name", ["later", "right", "nowhere"])
def test_only_phases_before_it_can_be_waited_for(name: str) -> None:
    phases = (SIDE_BY_SIDE[0], Phase("right", (), after=(name,)), Phase("later", ()))
    message = f"phase 'right' waits for '{name}', and no phase of that name stands before it"
    with pytest.raises(ProgramError, match=message):
        program(*phases)


@pytest.mark.parametrize(
    "op", [copy("d", "b"), copy("b", "d"), zero("b")], ids=["reads", "writes", "zeroes"]
)
def test_phases_that_touch_what_one_writes_do_not_run_at_once(op: Op) -> None:
    right = Phase("right", (op,), after=("first",))
    message = r"program p: right does not wait for left, and may run beside it: but .* writes b"
    with pytest.raises(ProgramError, match=message):
        parent(program(*SIDE_BY_SIDE[:2], right))


def test_what_both_only_read_may_be_read_at_once() -> None:
    assert afters(parent(program(*SIDE_BY_SIDE)))["right"] == ("first",)


def test_no_child_waits_for_one_that_is_not_before_it() -> None:
    children = [GraphLaunch("x", (zero("a"),), after=("y",)), GraphLaunch("y", (zero("b"),))]
    with pytest.raises(ProgramError, match="graph 'x' waits for 'y', and no child of that name"):
        waits_of_children(children)


# ---------------------------------------------------------------- merged, looped, timed


class Merging(toy.Toy):
    def __init__(self, *merges: Merge) -> None:
        super().__init__()
        self._merges = merges

    def merges(self, program: str) -> tuple[Merge, ...]:
        return self._merges


def merged(made: StepProgram, *merges: Merge) -> GraphLaunch:
    parts = toy.Toy()
    six = s6_parent_graph.rewrite(s5_child_graphs.rewrite(made, parts), parts)
    ((_, op),) = s7_fused_phases.rewrite(six, Merging(*merges)).ops()
    assert isinstance(op, GraphLaunch)
    return op


def test_a_merge_waits_for_what_its_phases_do() -> None:
    both = Merge("both", ("left", "right"), Fragment((copy("b", "a"), copy("c", "a"))))
    graph = merged(program(*SIDE_BY_SIDE), both)
    assert afters(graph) == {"first": None, "both": None, "last": None}
    front = Merge("front", ("first", "left"), Fragment((zero("a"), copy("b", "a"))))
    assert afters(merged(program(*SIDE_BY_SIDE), front)) == dict.fromkeys(
        ("front", "right", "last")
    )


def test_a_merge_of_the_phases_own_ops() -> None:
    back = Merge("back", ("right", "last"), lambda ops: Fragment(tuple(ops)))
    graph = merged(program(*SIDE_BY_SIDE), back)
    assert [op.label for op in children_of(graph.body)[-1].body] == [
        *("copy_dtod c <- a", "copy_dtod d <- b", "copy_dtod d <- c"),
    ]


def test_a_merge_may_be_of_merges() -> None:
    front = Merge("front", ("first", "left"), Fragment((zero("a"), copy("b", "a"))))
    rest = Merge("rest", ("front", "right", "last"), lambda ops: Fragment(tuple(ops)))
    (child,) = children_of(merged(program(*SIDE_BY_SIDE), front, rest).body)
    assert (child.name, len(child.body)) == ("rest", 5)


def test_a_merge_that_writes_what_runs_beside_it_is_refused() -> None:
    phases = (*SIDE_BY_SIDE[:2], Phase("idle", (zero("d"),)), replace(SIDE_BY_SIDE[2]))
    wrong = Merge("wrong", ("left", "idle"), Fragment((zero("c"),)))
    with pytest.raises(ProgramError, match="program p, 'wrong': right does not wait for wrong"):
        merged(program(*phases), wrong)


def test_they_run_and_are_timed_in_a_row() -> None:
    made = program(*SIDE_BY_SIDE)
    plain, timed = parent(made), parent(made, timed=True)
    assert places(children_of(timed.body)) == places(children_of(plain.body))
    composed = StepProgram("p", "learn", (Phase("p", (timed,)),), made.buffers)
    runner = Runner(composed, Workspace(HostDevice()))
    seen: list[object] = []
    compose = runner.device.compose
    runner.device.compose = lambda label, items, after=None: (  # type: ignore[method-assign]
        seen.append(after),
        compose(label, items, after),
    )[1]
    runner.step()
    runner.step(timed=True)
    assert seen == [[(), (0,), (0,), (1, 2)], None]
    assert list(runner.timings().phases) == ["first", "left", "right", "last"]


# ---------------------------------------------------------------- any phases


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(ops(), min_size=1, max_size=3), min_size=2, max_size=4), st.data())
def test_an_order_is_taken_if_and_only_if_it_keeps_what_must_stay(
    bodies: list[list[Op]], choices: st.DataObject
) -> None:
    phases = []
    for i, body in enumerate(bodies):
        after = choices.draw(
            st.none() | st.sets(st.integers(0, i - 1)) if i else st.none(), label="after"
        )
        names = None if after is None else tuple(f"p{j}" for j in sorted(after))
        phases.append(Phase(f"p{i}", tuple(body), after=names))
    made = StepProgram("random", "learn", tuple(phases), BUFFERS)
    above: list[set[int]] = []
    for i, phase in enumerate(phases):
        direct = (
            {i - 1} & set(range(i)) if phase.after is None else {int(n[1:]) for n in phase.after}
        )
        above.append(direct.union(*(above[j] for j in direct)))
    works = [(i, w) for i, body in enumerate(bodies) for op in body if (w := work(op)) is not None]
    needed = {
        (works[k][0], i)
        for (i, _), before in zip(works, dependences([w for _, w in works]), strict=True)
        for k in before
        if works[k][0] != i
    }
    if all(j in above[i] for j, i in needed):
        plain = contents(made, timed=False)
        graph = parent(made)
        composed = StepProgram("random", "learn", (Phase("p", (graph,)),), BUFFERS)
        assert contents(composed, timed=False) == plain
    else:
        with pytest.raises(ProgramError, match="does not wait for"):
            parent(made)
