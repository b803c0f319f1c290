"""Launches of one kernel as one op: what holds together, what it counts, and how they are found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_device import FakeCupti, TracedDevice

from onegraph.kernels.device import DeviceError, HostDevice
from onegraph.kernels.device.cupti_counts import CuptiCounter
from onegraph.stages import (
    Buffer,
    GraphLaunch,
    Launch,
    LaunchGroup,
    Phase,
    ProgramError,
    Ref,
    Runner,
    StepProgram,
    Workspace,
    s3_phase_events,
    s4_gpu_counters,
    s5_child_graphs,
    s6_parent_graph,
)
from onegraph.stages.bench import phase_ops
from onegraph.stages.launch_groups import grouped
from onegraph.stages.page.graph_drawing import Cluster, Node, from_program
from onegraph.stages.program import Alloc, Branches, Copy, Free, MatmulOp, Memset, Op, graphable
from onegraph.stages.program_subject import NoParts, ProgramSubject
from onegraph.stages.registry import STAGES
from onegraph.stages.runnable import require_runnable
from onegraph.stages.verify import verify

SIZE = 4
NAMES = ("a", "b", "c", "d")


def start(name: str) -> np.ndarray:
    return np.cos(np.arange(SIZE) + ord(name)).astype(np.float32)


BUFFERS = (*(Buffer(n, (SIZE,), "f32", initial=lambda n=n: start(n)) for n in NAMES),)


def relu(name: str, offset: int = 0, size: int = SIZE, **options: Any) -> Launch:
    """``max(x, 0)`` in place."""
    x = Ref(name, offset, size)
    return Launch("relu_epilogue", {"extra": x, "out": x, "n": size, "grad": 0}, **options)


def add(out: str, a: str, b: str, **options: Any) -> Launch:
    """``out = a + b``."""
    args = {"a": Ref(a), "b": Ref(b), "scale": Ref(a), "out": Ref(out)}
    return Launch("scaled_add", {**args, "n": SIZE, "scaled": 0}, **options)


def program(*ops: Op) -> StepProgram:
    return StepProgram("p", "learn", (Phase("x", ops),), BUFFERS)


# ---------------------------------------------------------------- the op


def test_it_is_one_call_and_one_node_that_touches_what_its_members_do() -> None:
    op = LaunchGroup((add("a", "c", "d"), add("b", "c", "c")))
    assert (op.reads(), op.writes(), op.calls()) == ({"c", "d"}, {"a", "b"}, {"launch": 1})
    assert op.written == (Ref("a"), Ref("b"))
    assert set(op.touched) == {Ref(n) for n in NAMES}
    assert (op.kernel, op.launched) == ("scaled_add", "scaled_add_group_2")
    assert op.label == "launch 2 x scaled_add"
    assert graphable(op)
    assert GraphLaunch("g", (op, op)).nodes() == 2


def test_it_prints_its_members() -> None:
    assert list(LaunchGroup((relu("a"), relu("b")), module="graphed").lines()) == [
        "launch group @graphed {",
        "  launch relu_epilogue(extra=a[0:4], out=a[0:4], n=4, grad=0)",
        "  launch relu_epilogue(extra=b[0:4], out=b[0:4], n=4, grad=0)",
        "}",
    ]


@pytest.mark.parametrize("count", [1, 9])
def test_it_has_two_to_eight_members(count: int) -> None:
    members = tuple(relu("a", i, 0) for i in range(count))
    with pytest.raises(ProgramError, match=f"x relu_epilogue: .* 2 to 8 members, got {count}"):
        LaunchGroup(members)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ((), "a launch group is of one kernel, got no members"),
        ((relu("a"), add("b", "c", "d")), "of one kernel, got relu_epilogue, scaled_add"),
        (
            (Launch("gemm", {}), Launch("gemm", {})),
            "launch gemm can't stand in a launch group: the compiler may fuse",
        ),
        ((relu("a", module="graphed"), relu("b")), "launch relu_epilogue: module and group are"),
        ((relu("a"), relu("b", group="g")), "module and group are those of the whole launch group"),
    ],
)
def test_what_no_group_is(members: tuple[Launch, ...], why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        LaunchGroup(members)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (relu("a"), relu("a", 3, 1)),
        (relu("a", 0, 2), relu("a", 1, 2)),
        (add("a", "c", "d"), add("a", "c", "d")),
        (add("a", "c", "d"), add("b", "a", "d")),
        (add("a", "c", "d"), add("b", "c", "a")),
    ],
)
def test_no_member_touches_what_another_writes(one: Launch, other: Launch) -> None:
    for members in ((one, other), (other, one)):
        with pytest.raises(ProgramError, match="can't run at once: the first writes a"):
            LaunchGroup(members)


def test_parts_of_one_buffer_that_do_not_meet_are_fine() -> None:
    assert LaunchGroup((relu("a", 0, 2), relu("a", 2, 2))).writes() == {"a"}


def test_it_may_stand_in_a_branch_and_must_not_meet_the_others() -> None:
    group = LaunchGroup((relu("a"), relu("b")))
    branches = Branches(((group,), (relu("c"),)))
    assert (branches.calls(), GraphLaunch("g", (branches,)).nodes()) == ({"launch": 2}, 2)
    with pytest.raises(ProgramError, match="launch 2 x relu_epilogue and launch relu_epilogue"):
        Branches(((group,), (relu("b", 1, 1),)))


def test_its_buffers_are_in_device_memory() -> None:
    buffers = (replace(BUFFERS[0], space="host"), *BUFFERS[1:])
    made = replace(program(LaunchGroup((relu("a"), relu("b")))), buffers=buffers)
    with pytest.raises(ProgramError, match="needs 'a' in device or pinned memory"):
        require_runnable(made)


# ---------------------------------------------------------------- who knows of it


def test_a_drawing_has_one_node_of_it() -> None:
    group = LaunchGroup((relu("a"), relu("b"), relu("c")))
    (cluster,) = from_program(program(GraphLaunch("x", (group, relu("d")))))
    assert cluster == Cluster(
        "x", (Node("3 x relu_epilogue", "kernel"), Node("relu_epilogue", "kernel"))
    )


def test_a_bench_says_what_it_runs() -> None:
    ops = LaunchGroup((relu("a"), relu("b"))), relu("c")
    assert phase_ops(program(*ops)) == {"x": ("2 x relu_epilogue", "relu_epilogue")}


def steps_of(made: StepProgram, device: HostDevice | None = None) -> list[dict[str, bytes]]:
    workspace = Workspace(device or HostDevice())
    runner = Runner(made, workspace)
    seen = []
    for _ in range(3):
        counts = runner.step()
        seen.append({name: workspace.read(name).tobytes() for name in NAMES})
    assert counts.counts == made.calls()
    return seen


def through_the_stages(made: StepProgram) -> list[StepProgram]:
    ungraphed = s4_gpu_counters.rewrite(made, NoParts())
    children = s5_child_graphs.rewrite(made, NoParts())
    return [made, ungraphed, children, s6_parent_graph.rewrite(children, NoParts())]


def test_a_group_goes_through_the_stages_with_the_bits_of_its_members() -> None:
    members = add("a", "c", "d"), add("b", "c", "c")
    after = relu("a")
    apart = steps_of(program(*members, after))
    for made in through_the_stages(program(LaunchGroup(members), after)):
        device = HostDevice()
        assert steps_of(made, device) == apart
        modules = {module for kernel, module in device.launch_sites if "group" in kernel}
        assert len(modules) == 1
    assert (modules, made.calls()) == ({"graphed"}, {("p", "graph_launch"): 1})
    assert device.launch_sites["scaled_add_group_2", "graphed"] == {"warm-up", "captured"}


def test_a_group_of_scratch_is_bound_anew_in_each_step() -> None:
    scratch = Buffer("s", (SIZE,), "f32", transient=True)
    copy = Copy(Ref("s"), Ref("a"), "dtod")
    group = LaunchGroup((relu("s"), relu("b")))
    ops = Alloc("s"), copy, group, Copy(Ref("c"), Ref("s"), "dtod"), Free("s")
    made = StepProgram("p", "learn", (Phase("x", ops),), (*BUFFERS, scratch))
    (*_, last) = steps_of(made)
    assert last["c"] == np.maximum(start("a"), 0).tobytes()
    assert last["b"] == np.maximum(start("b"), 0).tobytes()


def test_a_failure_names_the_group_and_the_phase() -> None:
    class Faulty(HostDevice):
        def _launch_group(self, group) -> None:
            self.fail("CUDA_ERROR_LAUNCH_FAILED", f"launch {group.name}", "planted")

    runner = Runner(program(LaunchGroup((relu("a"), relu("b")))), Workspace(Faulty()))
    with pytest.raises(DeviceError, match="relu_epilogue_group_2 in phase x: planted"):
        runner.step()


def test_verify_counts_one_kernel_a_group(monkeypatch) -> None:
    cupti = FakeCupti()
    cupti.install(monkeypatch)
    monkeypatch.setattr(CuptiCounter, "_registered", False)
    group = LaunchGroup((add("a", "c", "d"), add("b", "c", "c")))
    made = program(group, relu("a"), Branches(((relu("c"),), (relu("d"),))))
    known = (STAGES[0], STAGES[3], replace(STAGES[5], requires=()), STAGES[6])
    subject = ProgramSubject("groups", made, "b", "a", known)
    result = verify(subject, lambda: TracedDevice(cupti), steps=4)
    assert result.ok, [finding for _, finding in result.findings]
    assert result.cupti_counted
    legacy, parent = result.sets[0].cupti, result.sets[-1].cupti
    assert legacy is not None
    assert parent is not None
    assert (legacy.classes, legacy.kernels_outside) == ({"launches": 4}, 4)
    assert parent.kernels_inside == {5: 4}


def test_verify_sees_a_group_that_launches_its_members_one_by_one(monkeypatch) -> None:
    cupti = FakeCupti()
    cupti.install(monkeypatch)
    monkeypatch.setattr(CuptiCounter, "_registered", False)

    class Apart(TracedDevice):
        def _launch_group(self, group) -> None:
            self._kernel()
            super()._launch_group(group)

    subject = ProgramSubject("groups", program(LaunchGroup((relu("a"), relu("b")))), "b", "a")
    result = verify(subject, lambda: Apart(cupti), (frozenset(),), steps=4)
    assert {finding.check for _, finding in result.findings} == {"cupti-ledger"}


# ---------------------------------------------------------------- how they are found


def test_launches_of_one_kernel_become_one_in_the_place_of_the_first() -> None:
    zero, product = Memset(Ref("d")), MatmulOp(2, 2, 2, Ref("e"), Ref("e"), Ref("f"))
    ops = grouped([zero, relu("a"), product, add("g", "e", "e"), relu("b"), relu("c")])
    assert ops == (
        zero,
        LaunchGroup((relu("a"), relu("b"), relu("c"))),
        product,
        add("g", "e", "e"),
    )


def test_modules_and_op_groups_stay_apart_and_are_the_groups() -> None:
    ops = [relu(n, group="g" if n in "ab" else "") for n in "abc"]
    ops.append(relu("d", module="graphed"))
    assert grouped(ops) == (
        LaunchGroup((relu("a"), relu("b")), group="g"),
        relu("c"),
        relu("d", module="graphed"),
    )
    both = [relu(n, module="graphed") for n in "ab"]
    assert grouped(both) == (LaunchGroup((relu("a"), relu("b")), "graphed"),)


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (8, [8]), (9, [4, 5]), (17, [5, 6, 6])]
)
def test_many_are_dealt_evenly(count: int, sizes: list[int]) -> None:
    ops = grouped([relu(f"x{i}") for i in range(count)])
    assert [len(op.members) if isinstance(op, LaunchGroup) else 1 for op in ops] == sizes
    assert [op.written[0].buffer for op in ops if isinstance(op, LaunchGroup)][:1] == (
        ["x0"] if count > 1 else []
    )


def test_kernels_that_can_not_be_grouped_stay_as_they_are() -> None:
    ops = [Launch("gemm", {"a": Ref("a"), "b": Ref("a"), "out": Ref(n)}) for n in "bc"]
    assert grouped(ops) == tuple(ops)


def test_a_group_is_opened_and_takes_in_what_stands_beside_it() -> None:
    group = LaunchGroup((relu("a"), relu("b")))
    assert grouped([group, relu("c")]) == (LaunchGroup((relu("a"), relu("b"), relu("c"))),)
    assert grouped([group]) == (group,)


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ([relu("a"), add("b", "a", "c")], "are not independent: the first writes a"),
        ([Memset(Ref("a")), relu("a", 3, 1)], "are not independent: the first writes a"),
        ([Copy(Ref("a"), Ref("b"), "htod"), relu("c")], "copy_htod a <- b can't be grouped with"),
        ([Copy(Ref("a"), Ref("b"), "dtod"), relu("b")], "are not independent: the first writes b"),
    ],
)
def test_ops_that_are_not_independent_are_refused(ops: list[Op], why: str) -> None:
    for given_ops in (ops, ops[::-1]):
        with pytest.raises(ProgramError, match=why):
            grouped(given_ops)


@st.composite
def levels(draw: st.DrawFn) -> list[Op]:
    """Ops of which none depends on another: each writes a buffer of its own, none reads those."""
    found: list[Op] = []
    for i in range(draw(st.integers(0, 20))):
        group = draw(st.sampled_from(["", "g"]))
        kind = draw(st.sampled_from(["add", "relu", "zero", "product", "sum"]))
        if kind == "add":
            found.append(replace(add(f"x{i}", "a", "b"), group=group))
        elif kind == "relu":
            found.append(relu(f"x{i}", group=group))
        elif kind == "zero":
            found.append(Memset(Ref(f"x{i}")))
        elif kind == "product":
            found.append(MatmulOp(2, 2, 2, Ref("a"), Ref("b"), Ref(f"x{i}")))
        else:
            args = {"x": Ref("a"), "out": Ref(f"x{i}"), "rows": 1, "cols": SIZE}
            found.append(Launch("column_sum", args))
    return found


def members_of(ops: tuple[Op, ...]) -> list[Op]:
    return [
        replace(m, module=op.module, group=op.group) if op is not m else op
        for op in ops
        for m in (op.members if isinstance(op, LaunchGroup) else (op,))
    ]


@settings(max_examples=60, deadline=None)
@given(levels(), st.randoms())
def test_grouping_loses_nothing_and_the_order_decides_nothing_but_places(ops, random) -> None:
    found = grouped(ops)
    assert Counter(map(str, members_of(found))) == Counter(map(str, ops))
    assert grouped(found) == found
    firsts = [str(members_of((op,))[0]) for op in found]
    assert firsts == [line for line in map(str, ops) if line in firsts]
    random.shuffle(ops)
    assert len(grouped(ops)) == len(found)


@settings(max_examples=30, deadline=None)
@given(levels())
def test_grouping_changes_no_bit(ops: list[Op]) -> None:
    ops = [replace(op, group="") for op in ops]
    buffers = (*BUFFERS, *(Buffer(f"x{i}", (SIZE,), "f32") for i in range(20)))

    def contents(chosen: tuple[Op, ...]) -> dict[str, bytes]:
        workspace = Workspace(HostDevice())
        made = StepProgram("p", "learn", (Phase("x", chosen),), buffers)
        made = s3_phase_events.rewrite(made, NoParts())
        Runner(s5_child_graphs.rewrite(made, NoParts()), workspace).step()
        return {b.name: workspace.read(b.name).tobytes() for b in buffers}

    assert contents(grouped(ops)) == contents(tuple(ops))
