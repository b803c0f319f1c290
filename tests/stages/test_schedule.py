"""Ops regrouped by what they depend on: every order that has to hold does, and no bit changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ops import BUFFERS, contents, ops

from onegraph.kernels.device import HostDevice
from onegraph.stages import (
    GraphLaunch,
    Launch,
    LaunchGroup,
    Phase,
    ProgramError,
    Ref,
    Runner,
    StepProgram,
)
from onegraph.stages.dag import Dag, dependences
from onegraph.stages.program import (
    Alloc,
    Branches,
    Copy,
    Host,
    MatmulGroup,
    MatmulOp,
    Memset,
    Op,
    RecordEvent,
    Sync,
    conflict,
    graphable,
    opened,
)
from onegraph.stages.schedule import regrouped
from onegraph.stages.workspace import Workspace


def zero(name: str, **changes: Any) -> Memset:
    return Memset(Ref(name), **changes)


def copy(to: str, of: str) -> Copy:
    return Copy(Ref(to), Ref(of), "dtod")


def product(out: str, a: str, size: int = 2, **changes: Any) -> MatmulOp:
    return MatmulOp(size, 2, 2, Ref(a), Ref("w"), Ref(out), **changes)


def labels(dag: Dag) -> list[str]:
    return [op.label for op in dag.ops]


# ---------------------------------------------------------------- what depends on what


def test_reads_and_writes_keep_their_order() -> None:
    works = [zero("a"), copy("b", "a"), copy("c", "a"), zero("a"), copy("a", "c"), zero("d")]
    assert dependences(works) == [[], [0], [0], [0, 1, 2], [0, 1, 2, 3], []]


def test_parts_of_a_buffer_that_do_not_meet_do_not_wait() -> None:
    works = [Memset(Ref("a", 0, 2)), Memset(Ref("a", 2, 2)), Memset(Ref("a", 1, 2)), zero("a")]
    assert dependences(works) == [[], [], [0, 1], [0, 1, 2]]


def test_what_a_kernel_changes_in_place_it_writes() -> None:
    count = Launch("toy_count", {"step": Ref("step"), "scale": Ref("scale")})
    assert dependences([count, count, copy("b", "scale"), copy("c", "scale")]) == [
        *([], [0], [0, 1], [0, 1]),
    ]


# ---------------------------------------------------------------- by hand


def test_two_chains_meet() -> None:
    chains = [copy("a", "x"), copy("b", "a"), copy("c", "y"), copy("d", "c"), product("e", "b")]
    dag = regrouped([*chains, product("f", "d"), MatmulOp(2, 2, 2, Ref("e"), Ref("f"), Ref("g"))])
    assert dag.width == 2
    # Both products are ready at once, and share a launch that waits for both chains.
    assert labels(dag) == [
        *("copy_dtod a <- x", "copy_dtod c <- y", "copy_dtod b <- a", "copy_dtod d <- c"),
        *("matmul e, f", "matmul g"),
    ]
    assert dag.lanes == (0, 1, 0, 1, 0, 0)
    assert dag.after == ((), (), (), (), (3,), ())
    assert dag.critical_path == 4


def test_it_prints_lanes_and_what_is_waited_for() -> None:
    dag = regrouped(
        [copy("a", "x"), copy("b", "y"), MatmulOp(2, 2, 2, Ref("a"), Ref("b"), Ref("g"))]
    )
    assert list(dag.lines()) == [
        "dag of 3 ops in 2 lanes, 2 one after another {",
        "  0 in lane 0: copy_dtod a <- x",
        "  1 in lane 1: copy_dtod b <- y",
        "  2 in lane 0 after 1: matmul g[2x2] = a · b over 2",
        "}",
    ]


def test_the_longest_way_comes_first() -> None:
    long = [copy("a", "x"), copy("b", "a"), copy("c", "b")]
    dag = regrouped([zero("p"), zero("q"), *long], lanes=2)
    assert labels(dag)[0] == "copy_dtod a <- x"
    assert dag.critical_path == 3


def test_a_single_lane_is_the_order_of_a_chain() -> None:
    chain = [copy("a", "x"), copy("b", "a"), copy("c", "b")]
    dag = regrouped(chain)
    assert (dag.ops, dag.lanes, dag.after) == (tuple(chain), (0, 0, 0), ((), (), ()))


def test_forks_and_groups_are_taken_apart_and_put_together_anew() -> None:
    group = MatmulGroup((product("a", "x"), product("b", "y")), module="graphed")
    ops = [Branches(((zero("p"), group), (zero("q"), product("c", "z", module="graphed"))))]
    dag = regrouped(ops)
    (found,) = (op for op in dag.ops if isinstance(op, MatmulGroup))
    assert [m.out.buffer for m in found.members] == ["a", "b", "c"]
    assert found.module == "graphed"
    assert {m.module for m in found.members} == {"shared"}


def test_a_group_has_four_members_at_most_and_longer_sums_stand_first() -> None:
    ops = [replace(product(f"o{k}", "x"), k=k) for k in (1, 2, 3, 4, 5, 6)]
    dag = regrouped(ops)
    assert [[m.k for m in op.members] for op in dag.ops if isinstance(op, MatmulGroup)] == [
        *([6, 5], [4, 3, 2, 1]),
    ]


def test_the_same_layer_of_several_passes_shares_a_launch() -> None:
    other = [replace(product(f"p{i}", "x"), k=9) for i in range(2)]
    passes = [product(f"o{i}", "x", size=2 + i) for i in range(5)]
    dag = regrouped([*other, *passes])
    groups = [[m.out.buffer for m in op.members] for op in dag.ops if isinstance(op, MatmulGroup)]
    assert sorted(groups) == [["o0", "o1", "o2", "o3"], ["p0", "p1", "o4"]]


def test_what_does_not_share_has_a_launch_of_its_own() -> None:
    ops = [product("a", "x"), product("b", "y"), product("c", "z", size=1 << 14)]
    large = MatmulOp(1 << 11, 1 << 10, 1 << 10, Ref("x"), Ref("w"), Ref("l"))
    assert [op.kind for op in regrouped([*ops, large], shares=lambda _: False).ops] == [
        "matmul"
    ] * 4
    shared = regrouped([ops[0], large, replace(large, out=Ref("m"))], shares=lambda _: True)
    assert not any(isinstance(op, MatmulGroup) for op in shared.ops)


def gradient(out: str, a: str, k: int = 4096) -> MatmulOp:
    """Of a weight, over many rows."""
    return MatmulOp(4, 4, k, Ref(a), Ref("w"), Ref(out), trans_a=True)


def groups_of(dag: Dag) -> list[list[str]]:
    return [[m.out.buffer for m in op.members] for op in dag.ops if isinstance(op, MatmulGroup)]


def test_long_sums_share_launches_with_no_others() -> None:
    dag = regrouped([product("a", "x"), gradient("g", "x"), product("b", "y"), gradient("h", "y")])
    assert sorted(groups_of(dag)) == [["a", "b"], ["g", "h"]]


@pytest.mark.parametrize("between", [1, 4, 9])
def test_a_long_sum_waits_for_another_where_nothing_waits_for_it(between: int) -> None:
    chain = [copy(f"c{i + 1}", f"c{i}") for i in range(between)]
    dag = regrouped([gradient("g", "x"), *chain, gradient("h", f"c{between}")])
    assert groups_of(dag) == [["g", "h"]]


def test_a_long_sum_waits_for_no_other_that_waits_for_it() -> None:
    dag = regrouped([gradient("g", "x"), copy("p", "g"), gradient("h", "p")])
    assert groups_of(dag) == []
    both = [gradient(f"g{i}", "x") for i in range(2)]
    apart = [copy("p", "g0"), copy("q", "p"), copy("c", "y")]
    late = [gradient("h", "c"), copy("d", "c"), gradient("i", "d")]
    three = regrouped([*both, *apart, *late])
    assert groups_of(three) == [["g0", "g1"], ["h", "i"]]


def relu(out: str, a: str, **changes: Any) -> Launch:
    """``out``, where `a` is above zero."""
    return Launch("relu_epilogue", {"extra": Ref(a), "out": Ref(out), "n": 4, "grad": 1}, **changes)


def test_launches_of_one_kernel_that_are_ready_together_are_one_if_asked() -> None:
    ops: list[Op] = [relu("a", "x"), copy("p", "x"), relu("b", "a"), relu("c", "p"), relu("d", "y")]
    assert not any(isinstance(op, LaunchGroup) for op in regrouped(ops).ops)
    dag = regrouped(ops, launches=True)
    assert labels(dag) == [
        *("launch 2 x relu_epilogue", "copy_dtod p <- x", "launch 2 x relu_epilogue"),
    ]
    first, _, second = (singles([op]) for op in dag.ops)
    assert first == singles([ops[0], ops[4]])  # nothing stands before them
    assert second == singles([ops[2], ops[3]])  # something does before each, not the same
    assert dag.waits()[2] == (0, 1)
    assert dag.critical_path == 2


def test_groups_of_launches_are_taken_apart_too() -> None:
    group = LaunchGroup((relu("a", "x"), relu("b", "y")), module="graphed")
    ops: list[Op] = [copy("y", "z"), group, relu("c", "x", module="graphed")]
    apart = regrouped(ops)
    assert [op.kind for op in apart.ops].count("launch") == 3
    assert {op.module for op in apart.ops if isinstance(op, Launch)} == {"graphed"}
    (found,) = (op for op in regrouped(ops, launches=True).ops if isinstance(op, LaunchGroup))
    # Two of them could start at once. They wait for the third, which costs nobody time.
    assert [op.args["out"] for op in found.members] == [Ref("a"), Ref("b"), Ref("c")]
    assert found.module == "graphed"


def test_lanes_are_limited() -> None:
    ops = [zero(f"b{i}") for i in range(20)]
    assert regrouped(ops).width == 8
    assert regrouped(ops, lanes=3).width == 3
    one = regrouped(ops, lanes=1)
    assert (one.width, one.after) == (1, ((),) * 20)


def test_groups_of_ops_go() -> None:
    assert {op.group for op in regrouped([zero("a", group="x"), zero("b")]).ops} == {""}


@pytest.mark.parametrize(
    "op",
    [
        *(Host("f", print), Sync(), Alloc("y"), RecordEvent(0, ""), GraphLaunch("g", ())),
        Copy(Ref("a"), Ref("h"), "htod"),
    ],
)
def test_what_is_unknown_is_refused(op: Op) -> None:
    with pytest.raises(ProgramError, match="can't be regrouped: what it touches is unknown"):
        regrouped([zero("a"), op])


def test_nothing_and_no_lane_are_refused() -> None:
    with pytest.raises(ProgramError, match=r"a dag gives each of its ops a lane .* got 0 ops"):
        regrouped([])
    with pytest.raises(ProgramError, match="a schedule needs a lane, got 0; give 1 or more"):
        regrouped([zero("a")], lanes=0)


# ---------------------------------------------------------------- what a dag refuses


def dag(ops: list[Op], lanes: list[int], after: dict[int, tuple[int, ...]] | None = None) -> Dag:
    waits = after or {}
    return Dag(tuple(ops), tuple(lanes), tuple(waits.get(i, ()) for i in range(len(ops))))


def test_a_dag_calls_and_touches_what_its_ops_do() -> None:
    made = dag([zero("a"), copy("b", "x"), product("c", "x")], [0, 1, 2])
    assert (made.reads(), made.writes()) == ({"x", "w"}, {"a", "b", "c"})
    assert made.calls() == {"memset": 1, "dtod": 1, "matmul": 1}
    assert graphable(made)
    assert GraphLaunch("g", (made, zero("a"))).nodes() == 4
    assert list(opened([made])) == list(made.ops)


@pytest.mark.parametrize(
    ("lanes", "after"), [([0, 1], None), ([0, 0, 1], {1: ()}), ([0, 1, 0], {1: ()})]
)
def test_an_order_that_is_missing_is_named(lanes: list[int], after: Any) -> None:
    ops: list[Op] = [zero("a"), copy("b", "a"), copy("c", "b")][: len(lanes)]
    with pytest.raises(
        ProgramError, match=r"does not wait for .*, which it has to: .* writes [ab]"
    ):
        dag(ops, lanes, after)


def test_an_order_may_follow_from_others() -> None:
    ops = [zero("a"), copy("b", "a"), copy("a", "b")]
    assert dag(ops, [0, 1, 2], {1: (0,), 2: (1,)}).critical_path == 3


@pytest.mark.parametrize("place", [1, 2, -1])
def test_an_op_stands_behind_what_it_waits_for(place: int) -> None:
    with pytest.raises(ProgramError, match=f"stands at place 1 and waits for place {place}"):
        dag([zero("a"), zero("b"), zero("c")], [0, 1, 2], {1: (place,)})


@pytest.mark.parametrize("lanes", [[1], [0, 2], [0, -1]])
def test_lanes_count_up_from_0(lanes: list[int]) -> None:
    with pytest.raises(ProgramError, match="the lanes of a dag count up from 0"):
        dag([zero("a"), zero("b")][: len(lanes)], lanes)


def test_lists_fit_one_another() -> None:
    with pytest.raises(ProgramError, match="got 2 ops, 1 lanes and 2 lists of places"):
        Dag((zero("a"), zero("b")), (0,), ((), ()))


@pytest.mark.parametrize(
    "op",
    [
        *(zero("y", blocking=True), Host("f", print), Sync(), Alloc("y"), RecordEvent(0, "")),
        *(GraphLaunch("g", ()), Branches(((zero("y"),), (zero("z"),)))),
        *(Copy(Ref("y"), Ref("h"), "htod"), regrouped([zero("b")])),
    ],
)
def test_what_a_dag_can_not_hold(op: Op) -> None:
    with pytest.raises(ProgramError, match="can't stand in a dag"):
        dag([zero("a"), op], [0, 1])


def test_ops_have_no_group_of_their_own() -> None:
    with pytest.raises(ProgramError, match="memset y: the group is that of the dag"):
        dag([zero("a"), zero("y", group="g")], [0, 1])


def test_what_starts_early_is_refused() -> None:
    with pytest.raises(ProgramError, match="launch td_pass starts before what stands before it"):
        dag([zero("a"), Launch("td_pass", {})], [0, 1])


# ---------------------------------------------------------------- any ops


def singles(body: list[Op]) -> Counter[str]:
    """Every line of the ops, groups taken apart."""
    return Counter(line for op in body for member in members(op) for line in member.lines())


def members(op: Op) -> tuple[Op, ...]:
    """What a group does in one launch; another op is by itself."""
    return op.members if isinstance(op, MatmulGroup | LaunchGroup) else (op,)


@settings(max_examples=60, deadline=None)
@given(st.lists(ops(), min_size=1, max_size=14), st.integers(1, 4), st.booleans(), st.booleans())
def test_the_same_work_in_an_order_that_holds(
    body: list[Op], lanes: int, shares: bool, launches: bool
) -> None:
    made = regrouped(body, shares=lambda _: shares, launches=launches, lanes=lanes)
    assert launches or not any(isinstance(op, LaunchGroup) for op in made.ops)
    assert singles(list(made.ops)) == singles(body)
    assert made.width <= lanes
    assert made.critical_path <= len(made.ops) <= len(body)
    ancestors = made.ancestors()
    for i, one in enumerate(made.works):
        for j in range(i):
            if conflict([made.works[j]], [one]):
                assert ancestors[i] >> j & 1
    # Of two ops that conflict the first in the list is the first in the dag.
    place = {
        line: i
        for i, op in enumerate(made.ops)
        for member in members(op)
        for line in member.lines()
    }
    count = singles(body)
    for i, early in enumerate(body):
        for late in body[i + 1 :]:
            a, b = next(early.lines()), next(late.lines())
            if conflict([early], [late]) and count[a] == count[b] == 1:
                assert place[a] < place[b]


def wrapped(body: list[Op]) -> StepProgram:
    graph = GraphLaunch("p", tuple(body))
    return StepProgram("random", "learn", (Phase("p", (graph,)),), BUFFERS)


def shuffled(made: Dag, choices: st.DataObject) -> list[Op]:
    """The ops in another order that the dag allows."""
    waits, left, order = made.waits(), set(range(len(made.ops))), list[int]()
    while left:
        ready = sorted(i for i in left if not left & set(waits[i]))
        order.append(choices.draw(st.sampled_from(ready)))
        left.remove(order[-1])
    return [made.ops[i] for i in order]


@settings(max_examples=40, deadline=None)
@given(st.lists(ops(), min_size=1, max_size=10), st.integers(1, 4), st.booleans(), st.data())
def test_no_order_that_a_dag_allows_changes_a_bit(
    body: list[Op], lanes: int, launches: bool, choices: st.DataObject
) -> None:
    want = contents(wrapped(body), timed=False)
    made = regrouped(body, launches=launches, lanes=lanes)
    assert contents(wrapped([made]), timed=False) == want
    assert contents(wrapped(shuffled(made, choices)), timed=False) == want


@settings(max_examples=40, deadline=None)
@given(st.lists(ops(), min_size=2, max_size=10), st.booleans(), st.data())
def test_a_wrong_schedule_is_caught(body: list[Op], launches: bool, choices: st.DataObject) -> None:
    """Without one of the waits that the dag needs, it is refused."""
    made = regrouped(body, launches=launches, lanes=4)
    waits = [(i, place) for i, places in enumerate(made.after) for place in places]
    if not waits:
        return
    i, place = choices.draw(st.sampled_from(waits))
    fewer = tuple(
        tuple(p for p in places if (n, p) != (i, place)) for n, places in enumerate(made.after)
    )
    with pytest.raises(ProgramError, match="does not wait for"):
        replace(made, after=fewer)


# ---------------------------------------------------------------- on a device


def test_a_dag_is_captured_as_its_nodes() -> None:
    body = [Memset(Ref("a")), Copy(Ref("b", 0, 2), Ref("c", 0, 2), "dtod"), Memset(Ref("scale"))]
    made = regrouped([*body, Copy(Ref("c"), Ref("a"), "dtod")])
    assert made.width > 1
    runner = Runner(wrapped([Memset(Ref("b")), made, Memset(Ref("a"))]), Workspace(HostDevice()))
    for _ in range(2):
        runner.step()
    assert runner.graph_nodes() == {"p": 6}
    found = {name: runner.workspace.read(name).tolist() for name in "abc"}
    assert found["a"] == found["c"] == [0, 0, 0, 0]


def test_the_toys_step_regrouped_gives_the_same_bits() -> None:
    program = toy.Toy().program()
    assert any(op.kind == "host" for _, op in program.ops())  # stage 0 can't be regrouped
    with pytest.raises(ProgramError, match="can't be regrouped"):
        regrouped([op for _, op in program.ops()])


# ---------------------------------------------------------------- the background


def test_a_large_product_that_has_time_goes_to_the_background():
    """1,024 x 1,024 over 256 costs nine nodes, beside a chain of twelve: it has time for three."""

    def relu(name: str) -> Launch:
        return Launch("relu_epilogue", {"extra": Ref(name), "out": Ref(name), "n": 4, "grad": 0})

    def large(out: str) -> MatmulOp:
        return MatmulOp(1024, 1024, 256, Ref("a"), Ref("b"), Ref(out))

    chain = [relu("x") for _ in range(14)]
    dag = regrouped([large("y"), *chain])
    assert dag.background == 1
    (place,) = (i for i, op in enumerate(dag.ops) if isinstance(op, MatmulOp))
    assert dag.lanes[place] == dag.width - 1
    assert "in background lane 1: matmul y" in "\n".join(dag.lines())
    # Were it the longest way, or the lanes few, it would stay.
    assert regrouped([large("y"), *chain[:9]]).background == 0
    assert regrouped([large("y"), *chain], lanes=2).background == 0


def test_a_huge_product_beside_many_ops_goes_to_the_background():
    """2,048 x 1,024 over 256 costs seventeen nodes: the longest way, and eight chains beside it."""

    def relu(name: str) -> Launch:
        return Launch("relu_epilogue", {"extra": Ref(name), "out": Ref(name), "n": 4, "grad": 0})

    huge = MatmulOp(2048, 1024, 256, Ref("a"), Ref("b"), Ref("y"))
    beside = [relu(name) for name in "klmnopqr" for _ in range(2)]
    assert regrouped([huge, *beside]).background == 1
    assert regrouped([huge, *beside[1:]]).background == 0
