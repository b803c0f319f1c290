"""Ops that wait for one another to share a launch: where it pays, and never for themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.row_stacks import stacks
from onegraph.stages import Buffer, GraphLaunch, Phase, Ref, Runner, StepProgram, Workspace
from onegraph.stages.dag import Dag, dependences
from onegraph.stages.node_costs import cost_of
from onegraph.stages.program import (
    Copy,
    Launch,
    LaunchGroup,
    MatmulGroup,
    MatmulOp,
    Memset,
    Op,
    conflict,
)
from onegraph.stages.schedule import regrouped
from onegraph.stages.shared_launches import WORTH


def relu(out: str, a: str, n: int = 4) -> Launch:
    """``out``, where `a` is above zero."""
    return Launch("relu_epilogue", {"extra": Ref(a), "out": Ref(out), "n": n, "grad": 1})


def copy(to: str, of: str) -> Copy:
    return Copy(Ref(to), Ref(of), "dtod")


def product(out: str, a: str, k: int = 2) -> MatmulOp:
    return MatmulOp(2, 2, k, Ref(a), Ref("w"), Ref(out))


def outs(op: Op) -> str:
    """The buffers that an op writes, a group's in its order."""
    members = op.members if isinstance(op, LaunchGroup | MatmulGroup) else (op,)
    return " ".join(ref.buffer for member in members for ref in member.written)


def groups(dag: Dag) -> list[str]:
    return [outs(op) for op in dag.ops]


# ---------------------------------------------------------------- by hand


def test_a_pass_that_is_a_step_behind_goes_in_step_with_another() -> None:
    """What stands beside the longest way waits a node for what is a node later."""
    long: list[Op] = [copy("k", "x"), copy("l", "k"), relu("m", "l"), product("n", "m")]
    short: list[Op] = [relu("p", "y"), product("q", "p")]
    later: list[Op] = [copy("r", "z"), relu("s", "r"), product("t", "s")]
    dag = regrouped([*long, *short, *later], launches=True)
    assert sorted(groups(dag)) == ["k", "l", "m p s", "n q t", "r"]
    assert dag.critical_path == 4


def test_nothing_waits_where_the_way_would_get_longer_than_a_node_is_worth() -> None:
    """The long sum would keep the chain waiting for five nodes, and saves one."""
    chain = [product("a", "x"), *(relu("a", "a") for _ in range(9)), copy("e", "a")]
    long = product("l", "x", k=2048)
    dag = regrouped([*chain, long], launches=True)
    assert cost_of(long).nodes - cost_of(chain[0]).nodes > WORTH
    assert "l" in groups(dag)
    # Beside a chain of others with as long a sum it costs nobody anything.
    found = regrouped([*chain, long, product("m", "x", k=2048)], launches=True)
    assert "l m" in groups(found)


def test_two_launches_that_would_wait_for_each_other_do_not_both_form() -> None:
    """Crosswise: a product behind a relu, and a relu behind a product, beside a longer way."""
    ops: list[Op] = [relu("a", "x"), product("b", "a"), product("c", "y"), relu("d", "c")]
    longer = [copy("e", "z"), *([copy("f", "e"), copy("e", "f")] * 6)]
    dag = regrouped([*ops, *longer], launches=True)
    found = sorted(group for group in groups(dag) if group not in ("e", "f"))
    assert found in (["a", "b c", "d"], ["a d", "b", "c"])


def test_a_launch_takes_as_many_as_it_has_room_for() -> None:
    dag = regrouped([relu(f"o{i}", "x") for i in range(11)], launches=True)
    assert sorted(len(getattr(op, "members", (op,))) for op in dag.ops) == [3, 8]
    # Eight rows of one matrix are one product, beside which three others have room.
    rows = [MatmulOp(1, 2, 2, Ref("x", 2 * i, 2), Ref("w"), Ref("y", 2 * i, 2)) for i in range(8)]
    (made,) = regrouped([*rows, *(product(f"o{i}", "x") for i in range(3))]).ops
    assert isinstance(made, MatmulGroup)
    assert len(made.members) == 11
    assert len(made.in_launch) == 4


def test_modules_stay_apart() -> None:
    ops = [relu("a", "x"), replace(relu("b", "x"), module="graphed")]
    assert len(regrouped(ops, launches=True).ops) == 2


# ---------------------------------------------------------------- any ops

NAMES = tuple("abcdefghij")
SIZE = 8


def start(name: str) -> np.ndarray:
    return np.sin(np.arange(SIZE) + ord(name)).astype(np.float32)


BUFFERS = tuple(Buffer(n, (SIZE,), "f32", initial=lambda n=n: start(n)) for n in NAMES)


@st.composite
def wide_ops(draw: st.DrawFn) -> Op:
    """An op over many buffers, most of a kind that a launch can have several of."""
    first, second = draw(st.permutations(NAMES))[:2]
    kind = draw(st.sampled_from(["relu", "relu", "matmul", "row", "copy", "memset"]))
    if kind == "memset":
        return Memset(Ref(first, draw(st.integers(0, SIZE - 2)), 2))
    if kind == "copy":
        return copy(first, second)
    if kind == "relu":
        return relu(first, second)
    if kind == "row":
        at = 2 * draw(st.integers(0, SIZE // 2 - 1))
        return MatmulOp(1, 2, 2, Ref(second, at, 2), Ref(second, 0, 4), Ref(first, at, 2))
    k = draw(st.sampled_from([1, 2]))
    given = Ref(second, 0, 2 * k)
    return MatmulOp(2, 2, k, given, given, Ref(first, 4, 4), trans_a=draw(st.booleans()))


bodies = st.lists(wide_ops(), min_size=1, max_size=24)


def longest(dag: Dag) -> float:
    """The longest way through what the ops have to wait for, whatever their lanes."""
    ends: list[float] = []
    for op, places in zip(dag.works, dependences(dag.works), strict=True):
        ends.append(cost_of(op).nodes + max((ends[i] for i in places), default=0.0))
    return max(ends)


@settings(max_examples=60, deadline=None)
@given(bodies)
def test_members_are_independent_have_room_and_cost_less_than_they_save(body: list[Op]) -> None:
    made, apart = regrouped(body, launches=True), regrouped(body, shares=lambda _: False)
    saved = len(body) - len(made.ops)
    assert saved >= 0
    for op in made.ops:
        if isinstance(op, LaunchGroup | MatmulGroup):
            for one, other in combinations(op.members, 2):
                assert conflict([one], [other]) is None
        if isinstance(op, MatmulGroup):
            assert len(stacks([member.rows for member in op.members])) <= 4
    # At such sizes side by side costs next to nothing beside the nodes themselves.
    assert longest(made) <= longest(apart) + saved * WORTH + 1e-2


def contents(body: Sequence[Op]) -> dict[str, bytes]:
    graph = GraphLaunch("p", tuple(body))
    workspace = Workspace(HostDevice())
    runner = Runner(StepProgram("any", "learn", (Phase("p", (graph,)),), BUFFERS), workspace)
    with np.errstate(all="ignore"):
        for _ in range(2):
            runner.step()
    return {
        b.name: workspace.read(b.name).tobytes() for b in BUFFERS if b.name in workspace.buffers
    }


@settings(max_examples=40, deadline=None)
@given(bodies, st.integers(1, 8))
def test_the_bits_are_those_of_the_ops_one_after_another(body: list[Op], lanes: int) -> None:
    assert contents([regrouped(body, launches=True, lanes=lanes)]) == contents(body)
