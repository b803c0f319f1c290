"""Limits against counts, what a violation says, and planted calls being caught."""

from dataclasses import replace

import pytest
import toy

from onegraph.kernels.device import HostDevice
from onegraph.stages import (
    Budget,
    BudgetError,
    Buffer,
    Limit,
    Phase,
    ProgramError,
    Runner,
    StepProgram,
    Workspace,
    apply,
    budget,
)
from onegraph.stages.program import Alloc, Free, Host, Launch, Op, Ref
from onegraph.stages.registry import ALL

PROGRAM = StepProgram(
    "p",
    "learn",
    (Phase("a", tags=frozenset({"replay"})), Phase("b"), Phase("c", tags=frozenset({"replay"}))),
    (),
)


@pytest.mark.parametrize(
    ("limit", "counts", "broken"),
    [
        (Limit("dtoh", 1), {}, None),
        (Limit("dtoh", 1), {("a", "dtoh"): 1}, None),
        (Limit("dtoh", 1), {("a", "dtoh"): 2}, 2),
        (Limit("dtoh", 1), {("a", "dtoh"): 1, ("b", "dtoh"): 1}, 2),
        (Limit("dtoh", 1), {("a", "htod"): 9}, None),
        (Limit("dtoh", 0), {("a", "dtoh"): 0}, None),
        # tags: phases so tagged, together
        (Limit("dtoh", 1, tag="replay"), {("b", "dtoh"): 9}, None),
        (Limit("dtoh", 1, tag="replay"), {("a", "dtoh"): 1, ("b", "dtoh"): 1}, None),
        (Limit("dtoh", 1, tag="replay"), {("a", "dtoh"): 1, ("c", "dtoh"): 1}, 2),
        (Limit("dtoh", 1, tag="nowhere"), {("a", "dtoh"): 9}, None),
        # least
        (Limit("graph_launch", 1, 1), {}, 0),
        (Limit("graph_launch", 1, 1), {("a", "graph_launch"): 1}, None),
        (Limit("graph_launch", 1, 1), {("a", "graph_launch"): 2}, 2),
        # a phase that the program does not have still counts, unless the limit has a tag
        (Limit("dtoh", 0), {("", "dtoh"): 1}, 1),
        (Limit("dtoh", 0, tag="replay"), {("", "dtoh"): 1}, None),
    ],
)
def test_a_limit(limit: Limit, counts, broken: int | None) -> None:
    found = Budget((limit,)).violations(counts, PROGRAM)
    assert [v.count for v in found] == ([] if broken is None else [broken])


@pytest.mark.parametrize(
    ("timed", "records", "ok"),
    [(False, 0, True), (False, 1, False), (True, 3, True), (True, 4, False)],
)
def test_an_allowance_holds_on_timed_steps_alone(timed: bool, records: int, ok: bool) -> None:
    allowed = Budget((Limit("event_record", 0),), (Limit("event_record", 3),))
    counts = {("a", "event_record"): records}
    assert (not allowed.violations(counts, PROGRAM, timed=timed)) is ok


def test_a_violation_names_stage_kind_count_and_phases() -> None:
    limits = (
        Limit("dtoh", 1, tag="replay", stage="gpu-replay"),
        Limit("graph_launch", 1, 1, stage="parent-graph"),
    )
    counts = {("a", "dtoh"): 2, ("c", "dtoh"): 1, ("b", "dtoh"): 5}
    with pytest.raises(BudgetError) as error:
        Budget(limits).check(counts, PROGRAM)
    assert str(error.value) == (
        "stage gpu-replay: 3 dtoh calls in replay phases, at most 1 allowed (by phase: a 2, c 1);"
        " stage parent-graph: 0 graph_launch calls, at least 1 required (by phase: nowhere)"
    )
    assert [v.limit.stage for v in error.value.violations] == ["gpu-replay", "parent-graph"]


@pytest.mark.parametrize(
    ("stages", "kinds"),
    [
        ((), set()),
        ((3,), set()),
        ((1,), {"dtoh", "htod", "alloc", "free", "host", "sync"}),
        ((1, 2, 4), {"memset_sync", "dtod", "event_record", "event_set"}),
        ((1, 2, 4, 5), {"launch", "matmul", "memset", "graph_launch", "capture", "instantiate"}),
    ],
)
def test_what_each_set_limits(stages, kinds: set[str]) -> None:
    found = {limit.kind for limit in budget(toy.Toy().program(), frozenset(stages)).limits}
    assert kinds <= found
    if not stages or stages == (3,):
        assert not found


def test_stage_5_allows_a_graph_launch_for_each_phase_and_stage_3_an_event_for_each_boundary():
    allowed = budget(toy.Toy().program(), frozenset({1, 2, 3, 4, 5}))
    most = {limit.kind: limit.most for limit in allowed.limits if limit.stage == "child-graphs"}
    assert most["graph_launch"] == 6
    assert {(x.kind, x.most) for x in allowed.allowances} == {("event_record", 7), ("event_set", 7)}


# ---------------------------------------------------------------- planted calls


def plant(program: StepProgram, phase: str, *ops: Op, buffers: tuple[Buffer, ...] = ()):
    return replace(
        program,
        phases=tuple(
            replace(p, ops=(*p.ops, *ops)) if p.name == phase else p for p in program.phases
        ),
        buffers=(*program.buffers, *buffers),
    )


def staged(*stages: int) -> tuple[StepProgram, Budget]:
    parts = toy.Toy()
    legacy = parts.program()
    return apply(legacy, frozenset(stages), parts), budget(legacy, frozenset(stages))


@pytest.mark.parametrize(
    ("stages", "ops", "kind"),
    [
        ((1, 2), (Host("peek", print),), "host"),
        ((1, 2), (Alloc("leak"), Free("leak")), "alloc"),
        ((1, 2, 4), (Host("peek", print),), "host"),
        ((1, 2, 4), (Alloc("leak"), Free("leak")), "free"),
        (
            (1, 2, 4, 5),
            (Launch("toy_raise", {"pick": Ref("pick"), "prio": Ref("prio")}),),
            "launch",
        ),
    ],
)
def test_the_program_check_catches_a_planted_op(stages, ops, kind: str) -> None:
    program, allowed = staged(*stages)
    allowed.check(program.calls(), program)
    planted = plant(program, "raise", *ops, buffers=(Buffer("leak", (4,), "f32", transient=True),))
    with pytest.raises(BudgetError, match=rf"{kind} calls.*\(by phase: raise 1\)"):
        allowed.check(planted.calls(), planted)
    # and so does the ledger, which counts what is done
    runner = Runner(planted, Workspace(HostDevice()))
    runner.step()
    with pytest.raises(BudgetError, match=rf"{kind} calls.*\(by phase: raise 1\)"):
        allowed.check(runner.step().counts, planted)


def test_the_ledger_catches_what_a_host_op_hides() -> None:
    """The op says that it touches nothing; its function reads back through the workspace."""
    program, allowed = staged(1)
    workspace = Workspace(HostDevice())
    hidden = Host("innocent", lambda _: _peek(workspace))
    planted = plant(program, "raise", hidden)
    assert planted.calls()["raise", "dtoh"] == 0
    runner = Runner(planted, workspace)
    runner.step()
    counts = runner.step().counts
    assert counts != planted.calls()
    with pytest.raises(BudgetError, match=r"gpu-replay: 2 dtoh calls in replay.*raise 1"):
        allowed.check(counts, planted)


def _peek(workspace: Workspace) -> None:
    workspace.arrays["v"].to_host_checkpoint()


def test_the_ledger_catches_a_graph_rebuilt_each_step() -> None:
    program, allowed = staged(*ALL)
    runner = Runner(program, Workspace(HostDevice()))
    runner.step()
    allowed.check(runner.step().counts, program)
    runner.release_graphs()
    with pytest.raises(BudgetError, match="child-graphs: 5 capture calls"):
        allowed.check(runner.step().counts, program)


def test_a_host_op_planted_before_the_graphs_are_made_is_refused_by_the_rewrite() -> None:
    program, _ = staged(1, 2, 4)
    planted = plant(program, "raise", Host("peek", print))
    from onegraph.stages import s5_child_graphs

    with pytest.raises(ProgramError, match="phase raise: host peek can't be captured"):
        s5_child_graphs.rewrite(planted, toy.Toy())
