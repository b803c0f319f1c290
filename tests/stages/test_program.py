"""Programs as values: what they refuse, how they print, what they count."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toy

from onegraph.kernels.device.base import Matmul
from onegraph.stages import (
    Buffer,
    Fragment,
    GraphLaunch,
    Launch,
    Phase,
    ProgramError,
    Ref,
    StepProgram,
    registry,
)
from onegraph.stages.program import (
    Alloc,
    Branches,
    Copy,
    Free,
    Host,
    MatmulGroup,
    MatmulOp,
    Memset,
    RecordEvent,
    Sync,
    graphable,
    merge_buffers,
    ref,
)

X, Y, H = Buffer("x", (4,), "f32"), Buffer("y", (4,), "f32"), Buffer("h", (4,), "f32", "host")


def program(*phases: Phase, buffers: tuple[Buffer, ...] = (X, Y, H)) -> StepProgram:
    return StepProgram("p", "learn", phases, buffers)


def zero(name: str, group: str = "", *, blocking: bool = False) -> Memset:
    return Memset(Ref(name), blocking=blocking, group=group)


def test_an_undeclared_buffer_is_named_with_its_op_and_phase() -> None:
    with pytest.raises(ProgramError, match=r"program p, phase a: memset z names buffer 'z', which"):
        program(Phase("a", (zero("z"),)))


def test_an_undeclared_buffer_inside_a_graph_is_seen() -> None:
    with pytest.raises(ProgramError, match="'z'"):
        program(Phase("a", (GraphLaunch("a", (zero("z"),)),)))


def test_a_buffer_declared_twice() -> None:
    with pytest.raises(ProgramError, match="program p: buffer 'x' is declared twice"):
        program(buffers=(X, Y, X))


def test_a_phase_declared_twice() -> None:
    with pytest.raises(ProgramError, match="program p: phase 'a' is declared twice"):
        program(Phase("a"), Phase("b"), Phase("a"))


class TestReplaceGroup:
    def test_not_found(self) -> None:
        with pytest.raises(ProgramError, match=r"group 'g' stands in 0 phases.*groups here: none"):
            program(Phase("a", (zero("x"),))).replace_group("g", Fragment())

    def test_in_two_phases(self) -> None:
        two = program(Phase("a", (zero("x", "g"),)), Phase("b", (zero("y", "g"),)))
        with pytest.raises(ProgramError, match=r"'g' stands in 2 phases.*exactly one.*here: g\)"):
            two.replace_group("g", Fragment())

    def test_stands_where_the_first_stood_and_keeps_the_group(self) -> None:
        before = program(
            Phase("a", (zero("y"), zero("x", "g"), zero("y"), zero("x", "g"), zero("y")))
        )
        after = before.replace_group("g", Fragment((Sync(), zero("x"))))
        kinds = [(op.kind, op.group) for _, op in after.ops()]
        assert kinds == [
            ("memset", ""),
            ("sync", "g"),
            ("memset", "g"),
            ("memset", ""),
            ("memset", ""),
        ]

    def test_drops_what_is_used_no_more_and_takes_the_fragments_declarations(self) -> None:
        before = program(Phase("a", (zero("x", "g"), zero("y"))))
        wide, new = Buffer("y", (8,), "f32"), Buffer("n", (1,), "i32")
        after = before.replace_group("g", Fragment((zero("n"),), (wide, new)))
        assert after.buffer == {"y": wide, "n": new}

    def test_by_nothing(self) -> None:
        after = program(Phase("a", (zero("x", "g"),))).replace_group("g", Fragment())
        assert after.phases == (Phase("a"),)
        assert after.groups() == set()


def test_pruned_keeps_what_a_graph_body_names() -> None:
    full = program(Phase("a", (GraphLaunch("a", (zero("x"),)),)))
    assert [b.name for b in full.pruned().buffers] == ["x"]


def test_describe_is_stable_text() -> None:
    text = program(
        Phase("a", (zero("x"), zero("y", blocking=True)), frozenset({"t2", "t1"})),
        Phase("idle"),
        Phase(
            "c",
            (
                GraphLaunch("c", (MatmulOp(2, 2, 1, Ref("x", 0, 2), Ref("x", 2), Ref("y")),)),
                Copy(Ref("h"), Ref("y"), "dtoh", "to_host"),
                Host("f", lambda h: None, ("h",), ("h",)),
                RecordEvent(0, "a"),
                RecordEvent(1, ""),
            ),
        ),
    ).describe()
    assert text.splitlines() == [
        "program p (learn)",
        "buffers",
        "  h: f32[4] (host)",
        "  x: f32[4]",
        "  y: f32[4]",
        "phase a [t1, t2]",
        "  memset x",
        "  memset_sync y",
        "phase idle: nothing",
        "phase c",
        "  graph_launch c {",
        "    matmul y[2x2] = x[0:2] · x[2:] over 1",
        "  }",
        "  copy_dtoh h <- y via to_host()",
        "  host f(h) -> h",
        "  record_event 0 (before a), timed",
        "  record_event 1 (end), timed",
    ]


@pytest.mark.parametrize("stages", [frozenset(), registry.ALL], ids=["legacy", "all"])
def test_two_builds_of_a_program_print_alike_and_without_addresses(stages) -> None:
    texts = []
    for _ in range(2):
        parts = toy.Toy()
        texts.append(registry.apply(parts.program(), stages, parts).describe())
    assert texts[0] == texts[1]
    assert "0x" not in texts[0]
    assert "<function" not in texts[0]


def test_describe_without_buffers() -> None:
    assert program(Phase("a")).describe(buffers=False) == "program p (learn)\nphase a: nothing"


def test_buffers_print_their_shape_and_marks() -> None:
    assert str(Buffer("s", (), "i64")) == "s: i64[1]"
    assert str(Buffer("s", (2, 3), "f32", "pinned")) == "s: f32[2x3] (pinned)"
    assert str(Buffer("s", (2,), "f32", transient=True)) == "s: f32[2] (transient)"


class TestMergeBuffers:
    def test_the_same_declaration_once(self) -> None:
        assert merge_buffers((X, Y), (Y, H)) == (X, Y, H)

    def test_conflict(self) -> None:
        with pytest.raises(ProgramError, match=r"'x' is declared as x: f32\[4\] and as x: i32\[4"):
            merge_buffers((X,), (Buffer("x", (4,), "i32"),))

    def test_a_conflict_that_the_short_form_hides(self) -> None:
        with pytest.raises(ProgramError, match=r"x: f32\[4\] and as x: f32\[4\], persistent"):
            merge_buffers((X,), (Buffer("x", (4,), "f32", persistent=True),))

    def test_initial_contents_are_not_lost(self) -> None:
        filled = Buffer("x", (4,), "f32", initial=lambda: np.ones(4, np.float32))
        for order in ((X, filled), (filled, X)):
            assert merge_buffers(*((b,) for b in order))[0].initial is filled.initial


@pytest.mark.parametrize(
    ("op", "calls"),
    [
        (zero("x"), {"memset": 1}),
        (zero("x", blocking=True), {"memset_sync": 1, "sync": 1}),
        (Copy(Ref("x"), Ref("h"), "htod"), {"htod": 1}),
        (Copy(Ref("h"), Ref("x"), "dtoh"), {"dtoh": 1, "sync": 1}),
        (Copy(Ref("x"), Ref("y"), "dtod"), {"dtod": 1}),
        (Host("f", print), {"host": 1}),
        (Sync(), {"sync": 1}),
        (Alloc("x"), {"alloc": 1}),
        (Free("x"), {"free": 1}),
        (MatmulOp(2, 2, 1, Ref("x"), Ref("x"), Ref("y")), {"matmul": 1}),
        (GraphLaunch("g", (zero("x"), zero("y"))), {"graph_launch": 1}),
    ],
)
def test_calls_of_an_op(op, calls) -> None:
    assert program(Phase("a", (op,))).calls() == {("a", k): n for k, n in calls.items()}


def test_a_precision_reaches_the_device_and_is_printed() -> None:
    op = MatmulOp(2, 2, 1, Ref("x"), Ref("h"), Ref("y"), precision="tf32")
    assert op.spec == Matmul(2, 2, 1, precision="tf32")
    assert list(op.lines()) == ["matmul y[2x2] = x · h over 1 in tf32"]


def group_of(*outs: str, **options: Any) -> MatmulGroup:
    return MatmulGroup(
        tuple(MatmulOp(2, 2, 1, Ref("h"), Ref("h"), ref(o)) for o in outs), **options
    )


class TestMatmulGroup:
    def test_it_is_one_call_and_one_node_that_touches_what_its_members_do(self) -> None:
        op = group_of("x", "y")
        assert (op.reads(), op.writes(), op.calls()) == ({"h"}, {"x", "y"}, {"matmul": 1})
        assert op.label == "matmul x, y"
        assert graphable(op)
        assert GraphLaunch("g", (op, op)).nodes() == 2

    def test_it_prints_its_members(self) -> None:
        assert list(group_of("x", "y", module="graphed").lines()) == [
            "matmul group @graphed {",
            "  matmul x[2x2] = h · h over 1",
            "  matmul y[2x2] = h · h over 1",
            "}",
        ]

    @pytest.mark.parametrize("count", [0, 1, 5])
    def test_it_has_two_to_four_members(self, count: int) -> None:
        with pytest.raises(ProgramError, match=f"2 to 4 members, got {count}"):
            group_of(*"abcde"[:count])

    def test_rows_that_follow_one_another_count_once(self) -> None:
        """Three parts of x, of which the second and the first are one product of five rows."""
        rows = [
            MatmulOp(m, 2, 1, Ref("h", first, m), Ref("w"), Ref("x", 2 * first, 2 * m))
            for first, m in ((2, 3), (0, 2), (6, 1))
        ]
        others = group_of("a", "b").members
        group = MatmulGroup((*rows, *others))
        assert [(op.m, op.out) for op in group.in_launch] == [
            *((5, Ref("x", 0, 4)), (1, Ref("x", 12, 2)), (2, Ref("a")), (2, Ref("b"))),
        ]
        assert group.calls() == {"matmul": 1}
        with pytest.raises(ProgramError, match="2 to 4 members, got 5"):
            MatmulGroup((*rows, *group_of("a", "b", "c").members))

    @pytest.mark.parametrize(
        "other",
        [
            MatmulOp(2, 2, 1, Ref("h"), Ref("h"), Ref("x", 2, 2)),
            MatmulOp(2, 2, 1, Ref("x", 3, 1), Ref("h"), Ref("y")),
            MatmulOp(2, 2, 1, Ref("h"), Ref("x"), Ref("y")),
            MatmulOp(2, 2, 1, Ref("h"), Ref("h"), Ref("y"), Ref("x", 0, 2), epilogue="bias"),
            MatmulOp(2, 2, 1, Ref("h"), Ref("h"), Ref("y"), Ref("x", 0, 1), epilogue="bias_grad"),
        ],
    )
    def test_no_member_touches_what_another_writes(self, other: MatmulOp) -> None:
        one = MatmulOp(2, 2, 1, Ref("h"), Ref("h"), Ref("x", 0, 4))
        for members in ((one, other), (other, one)):
            with pytest.raises(ProgramError, match=r"can't run at once: the first writes x\["):
                MatmulGroup(members)

    def test_parts_of_one_buffer_that_do_not_meet_are_fine(self) -> None:
        x = [
            MatmulOp(1, 2, 1, Ref("h"), Ref("h"), Ref("x", 2 * i, 2), Ref("y"), epilogue="bias")
            for i in (0, 1)
        ]
        assert MatmulGroup(tuple(x)).writes() == {"x"}

    @pytest.mark.parametrize("own", [{"module": "graphed"}, {"group": "g"}])
    def test_members_have_no_module_and_no_group_of_their_own(self, own: dict[str, Any]) -> None:
        members = tuple(replace(m, **own) for m in group_of("x", "y").members)
        with pytest.raises(ProgramError, match="matmul x: module and group are those of the whole"):
            MatmulGroup(members)


def product_of(out: str, a: str = "h") -> MatmulOp:
    return MatmulOp(2, 2, 1, Ref(a), Ref(a), ref(out))


class TestBranches:
    def test_they_call_and_touch_what_their_members_do(self) -> None:
        op = Branches(((zero("x"), product_of("x")), (product_of("y"), group_of("z", "w"))))
        assert (op.reads(), op.writes()) == ({"h"}, {"x", "y", "z", "w"})
        assert op.calls() == {"matmul": 3, "memset": 1}
        assert op.label == "2 branches"
        assert graphable(op)
        assert GraphLaunch("g", (op, zero("x"))).nodes() == 5

    def test_they_print_their_members(self) -> None:
        assert list(Branches(((zero("x"), zero("x")), (zero("y"),))).lines()) == [
            *("branches {", "  {", "    memset x", "    memset x", "  }"),
            *("  {", "    memset y", "  }", "}"),
        ]

    @pytest.mark.parametrize("branches", [(), ((zero("x"),),), ((zero("x"),), ())])
    def test_there_are_two_and_none_is_empty(self, branches: Any) -> None:
        with pytest.raises(ProgramError, match="branches are 2 or more lists of ops, got"):
            Branches(branches)

    @pytest.mark.parametrize(
        "op",
        [
            *(zero("y", blocking=True), Copy(Ref("y"), Ref("h"), "htod"), Host("f", print)),
            *(Sync(), Alloc("y"), RecordEvent(0, ""), GraphLaunch("g", ())),
            Branches(((zero("y"),), (zero("z"),))),
        ],
    )
    def test_what_they_can_not_hold(self, op: Any) -> None:
        with pytest.raises(ProgramError, match="can't stand in a branch"):
            Branches(((zero("x"),), (op,)))

    def test_members_have_no_group_of_their_own(self) -> None:
        with pytest.raises(ProgramError, match="memset y: the group is that of the branches"):
            Branches(((zero("x"),), (zero("y", "g"),)))

    @pytest.mark.parametrize(
        "other",
        [
            Memset(Ref("x", 2, 2)),
            product_of("y", "x"),
            MatmulOp(2, 2, 1, Ref("h"), Ref("h"), Ref("y"), Ref("x", 0, 1), epilogue="bias_grad"),
            MatmulGroup((product_of("y"), product_of("z", "x"))),
            Launch("toy_count", {"step": Ref("x", 1, 1), "scale": Ref("y")}),
            Launch("toy_count", {"step": Ref("y"), "scale": Ref("x", 3)}),
        ],
    )
    def test_no_branch_touches_what_another_writes(self, other: Any) -> None:
        one = Memset(Ref("x", 0, 4))
        for branches in (((one,), (other,)), ((zero("w"), other), (zero("v"), one))):
            with pytest.raises(ProgramError, match=r"can't stand in two branches: the first wri"):
                Branches(branches)

    def test_what_only_is_read_may_be_read_by_all_and_parts_may_be_written(self) -> None:
        x = [MatmulOp(1, 2, 1, Ref("h"), Ref("h"), Ref("x", 2 * i, 2)) for i in (0, 1)]
        assert Branches(((x[0],), (x[1],))).writes() == {"x"}

    def test_a_program_opens_them(self) -> None:
        op = Branches(((zero("x"), zero("x")), (zero("y"),)), group="g")
        made = program(Phase("a", (op,)))
        assert [o.label for _, o in made.ops()] == ["memset x", "memset x", "memset y"]
        assert [(o.label, d) for _, o, d in made.all_ops()] == [
            *(("memset x", 0), ("memset x", 0), ("memset y", 0)),
        ]
        assert made.groups() == {"g"}
        inside = program(Phase("a", (GraphLaunch("a", (op,)),)))
        assert [(o.label, d) for _, o, d in inside.all_ops()][1:] == [
            *(("memset x", 1), ("memset x", 1), ("memset y", 1)),
        ]

    def test_stages_reach_inside(self) -> None:
        op = Branches(((group_of("x", "v"), product_of("x")), (product_of("y"),)))
        buffers = (X, Y, replace(H, space="device"), Buffer("v", (4,), "f32"))
        made = program(Phase("a", (op,)), buffers=buffers)
        outside = registry.apply(made, frozenset({1, 2, 4}), toy.Toy())
        assert {getattr(o, "module", "") for _, o in outside.ops()} == {"ungraphed"}
        inside = registry.apply(made, frozenset({1, 2, 4, 5, 6}), toy.Toy())
        modules = {o.module for *_, o, d in inside.all_ops() if d == 2}
        assert modules == {"graphed"}
        assert isinstance(inside.phases[0].ops[0].body[0].body[0], Branches)


def test_events_count_on_timed_steps_only() -> None:
    outside = program(Phase("a", (RecordEvent(0, "a"), zero("x"), RecordEvent(1, ""))))
    assert outside.calls() == {("a", "memset"): 1}
    assert outside.calls(timed=True) == {("a", "memset"): 1, ("a", "event_record"): 2}
    inside = program(Phase("a", (GraphLaunch("a", outside.phases[0].ops),)))
    assert inside.calls() == {("a", "graph_launch"): 1}
    assert inside.calls(timed=True) == {("a", "graph_launch"): 1, ("a", "event_set"): 2}


def test_graph_nodes_leave_events_out_and_open_children() -> None:
    child = GraphLaunch("c", (zero("x"), zero("y")))
    parent = GraphLaunch("p", (RecordEvent(0, "c"), child, zero("x"), RecordEvent(1, "")))
    assert (child.nodes(), parent.nodes(), parent.events) == (2, 3, 2)


@pytest.mark.parametrize(
    ("op", "yes"),
    [
        (zero("x"), True),
        (zero("x", blocking=True), False),
        (Copy(Ref("x"), Ref("y"), "dtod"), True),
        (Copy(Ref("x"), Ref("h"), "htod"), False),
        (Copy(Ref("h"), Ref("x"), "dtoh"), False),
        (MatmulOp(2, 2, 1, Ref("x"), Ref("x"), Ref("y")), True),
        (GraphLaunch("g", ()), True),
        (Host("f", print), False),
        (Sync(), False),
        (Alloc("x"), False),
        (Free("x"), False),
        (RecordEvent(0, ""), False),
    ],
)
def test_what_a_graph_can_hold(op, yes: bool) -> None:
    assert graphable(op) is yes


def test_a_launch_reads_and_writes_what_its_kernel_declares() -> None:
    op = Launch("toy_count", {"step": Ref("s"), "scale": Ref("c")})
    assert (op.reads(), op.writes()) == ({"s"}, {"s", "c"})
    assert graphable(op)


def test_refs() -> None:
    assert ref("x") == Ref("x")
    assert ref(Ref("x", 2)) == Ref("x", 2)
    assert [str(r) for r in (Ref("x"), Ref("x", 2), Ref("x", 2, 3), Ref("x", 0, 1))] == [
        "x",
        "x[2:]",
        "x[2:5]",
        "x[0:1]",
    ]


def test_programs_are_values() -> None:
    a, b = (program(Phase("a", (zero("x"),))) for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
