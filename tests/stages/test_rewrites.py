"""Each stage's rewrite on the toy, as the printed diff shows it, and on programs it must refuse."""

from dataclasses import replace
from difflib import unified_diff

import pytest
import toy

from onegraph.stages import (
    STAGES,
    Buffer,
    GraphLaunch,
    Phase,
    ProgramError,
    Ref,
    StepProgram,
    apply,
    valid_sets,
)
from onegraph.stages.program import Copy, Host, Memset, RecordEvent
from onegraph.stages.registry import step_stages

CHAIN = ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6))


def changed(stage: int) -> tuple[list[str], list[str]]:
    """Lines (ops alone, no buffers) that `stage` took away from and put into the one before it."""
    texts = []
    for stages in (CHAIN[stage - 1], CHAIN[stage]):
        parts = toy.Toy()
        texts.append(apply(parts.program(), frozenset(stages), parts).describe(buffers=False))
    diff = list(unified_diff(*(t.splitlines() for t in texts), n=0, lineterm=""))[2:]
    return tuple([line[1:].strip() for line in diff if line[0] == sign] for sign in "-+")  # type: ignore[return-value]


def test_stage_0_changes_nothing() -> None:
    parts = toy.Toy()
    assert apply(parts.program(), frozenset(), parts).describe() == parts.program().describe()
    assert parts.asked == []


def test_stage_1_puts_the_replay_on_the_device() -> None:
    gone, new = changed(1)
    assert gone == [
        "host draw(prio_host, step_host) -> pick_host",
        "copy_htod pick <- pick_host",
        "copy_dtoh norm_host <- norm_scratch via to_host()",
        "host raise_priority(pick_host, prio_host) -> prio_host",
    ]
    assert new == [
        "launch toy_total(prio=prio, total=total, n=8)",
        "copy_dtoh total_host <- total",
        "host draw_from_total(total_host, step_host) -> pick_host",
        "alloc pick_scratch",
        "copy_htod pick_scratch <- pick_host",
        "copy_dtod pick <- pick_scratch",
        "free pick_scratch",
        "copy_dtoh norm_host <- norm_scratch",
        "launch toy_raise(pick=pick, prio=prio)",
    ]


def test_stage_2_draws_on_the_device() -> None:
    gone, new = changed(2)
    assert [line.split()[0] for line in gone] == [
        "copy_dtoh",
        "host",
        "alloc",
        "copy_htod",
        "copy_dtod",
        "free",
    ]
    assert new == ["launch toy_draw(total=total, step=step, pick=pick, n=8)"]


def test_stage_3_adds_events_and_nothing_else() -> None:
    gone, new = changed(3)
    phases = ("draw", "count", "multiply", "publish", "idle", "raise")
    assert gone == ["phase idle: nothing"]
    assert [line for line in new if line != "phase idle"] == [
        *(f"record_event {i} (before {name}), timed" for i, name in enumerate(phases)),
        "record_event 6 (end), timed",
    ]


def test_stage_4_leaves_launches_of_the_ungraphed_module() -> None:
    parts = toy.Toy()
    program = apply(parts.program(), frozenset(CHAIN[4]), parts)
    assert {op.kind for _, op in program.ops()} == {"launch", "matmul", "memset", "event_record"}
    for _, op in program.ops():
        assert getattr(op, "module", "ungraphed") == "ungraphed"
        assert not getattr(op, "blocking", False)
    gone, new = changed(4)
    assert "memset_sync w" in gone
    assert "memset w" in new
    assert "launch toy_count(step=step, scale=scale) @ungraphed" in new
    host_buffers = {"step_host", "scale_host", "norm_host", "norm_scratch", "pick_host"}
    assert not host_buffers & set(program.buffer)


def test_stage_4_keeps_a_module_that_was_chosen() -> None:
    parts = toy.Toy()
    legacy = parts.program().map_ops(
        lambda op: replace(op, module="graphed") if op.kind == "matmul" else op
    )
    program = apply(legacy, frozenset({1, 2, 4}), parts)
    assert {op.module for _, op in program.ops() if op.kind == "matmul"} == {"graphed"}


def test_stage_5_wraps_each_phase_that_has_work() -> None:
    parts = toy.Toy()
    program = apply(parts.program(), frozenset({1, 2, 4, 5}), parts)
    by_phase = {p.name: p.ops for p in program.phases}
    assert by_phase.pop("idle") == ()
    for name, ops in by_phase.items():
        (graph,) = ops
        assert isinstance(graph, GraphLaunch)
        assert (graph.name, graph.group) == (name, "graph")
        assert {getattr(op, "module", "graphed") for op in graph.body} == {"graphed"}


def test_stage_5_keeps_boundary_events_outside_in_their_order() -> None:
    parts = toy.Toy()
    program = apply(parts.program(), frozenset(CHAIN[5]), parts)
    kinds = {p.name: [op.kind for op in p.ops] for p in program.phases}
    assert kinds["draw"] == ["event_record", "graph_launch"]
    assert kinds["idle"] == ["event_record"]
    assert kinds["raise"] == ["event_record", "graph_launch", "event_record"]
    assert [op.index for _, op in program.ops() if isinstance(op, RecordEvent)] == [*range(7)]


def test_stage_6_leaves_one_op() -> None:
    parts = toy.Toy()
    program = apply(parts.program(), frozenset({1, 2, 4, 5, 6}), parts)
    ((phase, parent),) = program.ops()
    assert (phase, parent.name, parent.events) == ("power", "power", 0)
    assert [c.name for c in parent.body] == ["draw", "count", "multiply", "publish", "raise"]


def test_stage_6_puts_the_events_between_the_children() -> None:
    parts = toy.Toy()
    ((_, parent),) = apply(parts.program(), frozenset(CHAIN[6]), parts).ops()
    e, g = "event_record", "graph_launch"
    assert [op.kind for op in parent.body] == [e, g, e, g, e, g, e, g, e, e, g, e]


@pytest.mark.parametrize("stages", valid_sets(step_stages()), ids=str)
def test_a_rewrite_leaves_its_input_as_it_was(stages) -> None:
    parts = toy.Toy()
    program = parts.program()
    before, text = replace(program), program.describe()
    for stage in step_stages():
        if stage.number in stages:
            untouched = program.describe()
            program, previous = stage.rewrite(program, parts), program
            assert previous.describe() == untouched
    assert parts.program() == before
    assert parts.program().describe() == text


@pytest.mark.parametrize("stages", valid_sets(step_stages()), ids=str)
def test_the_same_set_gives_the_same_program(stages) -> None:
    parts = toy.Toy()
    a = apply(parts.program(), stages, parts)
    b = apply(parts.program(), stages, parts)
    assert a == b


def test_stages_ask_for_the_groups_that_the_program_has() -> None:
    parts = toy.Toy()
    apply(parts.program("other"), frozenset(CHAIN[6]), parts)
    assert parts.asked == [
        ("gpu-replay", "other", "sample"),
        ("gpu-replay", "other", "priorities"),
        ("gpu-replay", "other", "statistics"),
        ("philox-per", "other", "sample"),
        ("gpu-counters", "other", "sample"),
        ("gpu-counters", "other", "counters"),
        ("gpu-counters", "other", "statistics"),
    ]


# ---------------------------------------------------------------- anyone's program

BUFFERS = (Buffer("d", (4,), "f32"), Buffer("h", (4,), "f32", "host"))
REWRITE = {s.number: s.rewrite for s in STAGES}


def any_program(*phases: Phase) -> StepProgram:
    return StepProgram("mine", "learn", phases, BUFFERS)


@pytest.mark.parametrize(
    ("op", "label"),
    [
        (Host("think", print), "host think"),
        (Memset(Ref("d"), blocking=True), "memset d"),
        (Copy(Ref("d"), Ref("h"), "htod"), "copy_htod d <- h"),
        (Copy(Ref("h"), Ref("d"), "dtoh"), "copy_dtoh h <- d"),
    ],
)
def test_stage_5_refuses_by_op_and_phase(op, label: str) -> None:
    program = any_program(Phase("fine", (Memset(Ref("d")),)), Phase("bad", (op,)))
    with pytest.raises(ProgramError, match=f"program mine, phase bad: {label} can't be captured"):
        REWRITE[5](program, toy.Toy())


def test_stage_6_refuses_an_op_outside_a_graph() -> None:
    program = any_program(
        Phase("a", (GraphLaunch("a", (Memset(Ref("d")),)),)), Phase("b", (Memset(Ref("d")),))
    )
    with pytest.raises(ProgramError, match="program mine, phase b: memset d stands outside a"):
        REWRITE[6](program, toy.Toy())


def test_stages_3_5_and_6_take_a_program_without_phases_or_work() -> None:
    for program in (any_program(), any_program(Phase("a"), Phase("b"))):
        for number in (3, 5, 6):
            program = REWRITE[number](program, toy.Toy())
        ((_, parent),) = program.ops()
        assert parent.nodes() == 0
        assert len(toy.trajectory_of_nothing(program)) == 2
