"""Stage 8 on programs that are no DQN: rounds, the loop around them, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import toy

from onegraph.kernels.device import HostDevice
from onegraph.stages import Buffer, Fragment, Launch, Ref, Runner, StepProgram, Workspace, apply
from onegraph.stages.budget import BudgetError
from onegraph.stages.program import (
    GraphLaunch,
    Host,
    Memset,
    Op,
    Phase,
    ProgramError,
    RecordEvent,
    WhileGraph,
)
from onegraph.stages.registry import budget, refusals, step_stages, up_to
from onegraph.stages.round_program import MOST_STEPS, round_program
from onegraph.stages.runnable import require_runnable

SIX, EIGHT = up_to(6), up_to(8)

ORDER = Buffer("loop_order", (4,), "i64", "pinned")
REPORT = Buffer("loop_report", (3,), "i64", "pinned")
GO = Buffer("loop_go", (1,), "i32")
COUNTERS = Buffer("counters", (16,), "i64")
SKIP = Buffer("skip", (1,), "i32")


def control(**changes: Ref | int) -> Launch:
    args: dict[str, Ref | int | float] = {
        "counters": Ref("counters"),
        "skip": Ref("skip"),
        "order": Ref("loop_order"),
        "report": Ref("loop_report"),
        "go": Ref("loop_go"),
        "condition": 0,
    }
    return Launch("loop_control", args | changes)


class Looped(toy.Toy):
    """The toy, whose step counts itself where the loop's control looks."""

    def fragment(self, stage: str, program: str, group: str) -> Fragment:
        if group == "control":
            assert (stage, program) == ("epoch-graph", "powers")
            return Fragment((control(),), (ORDER, REPORT, GO, COUNTERS, SKIP))
        return super().fragment(stage, program, group)

    def at(self, stages: frozenset[int], times: int = 1) -> StepProgram:
        step = apply(self.program(), stages, self)
        # The toy's counter, in the place of the learner's.
        tick = GraphLaunch(
            "tick",
            (
                Launch(
                    "advance_counters",
                    {
                        "counters": Ref("counters"),
                        "schedule": Ref("schedule"),
                        "params": Ref("params"),
                        "skip": Ref("skip"),
                        "program": 0,
                        "lanes": 1,
                        "slots": 1,
                    },
                    module="graphed",
                ),
            ),
        )
        more = (COUNTERS, SKIP, Buffer("schedule", (24,), "f64"), Buffer("params", (20,), "f64"))
        ticks = StepProgram("ticks", "learn", (Phase("tick", (tick,)),), more)
        return apply(round_program("powers", [(step, times), (ticks, 1)]), stages, self)


def test_a_round_is_whole_steps_without_their_events() -> None:
    parts = Looped()
    step = apply(parts.program(), SIX, parts)
    assert any(isinstance(op, RecordEvent) for _, op, _ in step.all_ops())
    made = round_program("powers", [(step, 3)])
    assert made.scope == "round"
    assert [p.name for p in made.phases] == ["power"]
    assert len(made.phases[0].ops) == 3
    assert not any(isinstance(op, RecordEvent) for _, op, _ in made.all_ops())
    assert set(made.buffers) == set(step.buffers)


@pytest.mark.parametrize("stages", [up_to(0), up_to(3), SIX], ids=str)
@pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")
def test_a_round_does_what_its_steps_do(stages: frozenset[int]) -> None:
    parts = toy.Toy()
    step = apply(parts.program(), stages, parts)
    made = round_program("powers", [(step, 4)])
    workspace = Workspace(HostDevice())
    runner = Runner(made, workspace)
    runner.step()
    runner.step()
    assert toy.results(workspace) == toy.trajectory(step, 8)[-1]


def test_rounds_that_are_no_program() -> None:
    step = toy.Toy().program()
    with pytest.raises(ProgramError, match=r"a round of 0 steps \(0 of power\) can't be one"):
        round_program("powers", [(step, 0)])
    with pytest.raises(ProgramError, match=r"65 of power.* takes 1 to 64"):
        round_program("powers", [(step, MOST_STEPS + 1)])


def test_the_loop_keeps_every_bit_in_one_launch() -> None:
    parts = Looped()
    program = parts.at(EIGHT, times=2)
    assert program.takes_turns
    wanted = toy.trajectory(apply(toy.Toy().program(), SIX, toy.Toy()), 26)
    workspace = Workspace(HostDevice())
    runner = Runner(program, workspace)
    allowed = budget(program, EIGHT)
    for until in (1, 3, 4, 13):
        workspace.ensure(program.buffers)
        workspace.host["loop_order"][:] = (until, 0, 0, 0)
        counts = runner.step()
        if until > 1:
            assert counts.by_kind() == Counter(graph_launch=1)
            allowed.check(counts.counts, program)
        assert toy.results(workspace) == wanted[2 * until - 1]
    assert not runner.keeps_times
    step_nodes = sum(op.nodes() for op in _loop(program).turn if isinstance(op, GraphLaunch))
    assert runner.graph_nodes() == {"powers": step_nodes + 2} == {"powers": _loop(program).nodes()}


def test_a_loop_with_nothing_to_do_is_not_captured_yet() -> None:
    program = Looped().at(EIGHT)
    workspace = Workspace(HostDevice())
    runner = Runner(program, workspace)
    runner.step()
    assert runner.graph_nodes() == {}
    assert not workspace.read("step").any()
    workspace.host["loop_order"][:] = (2, 0, 0, 0)
    runner.step()
    assert runner.graph_nodes() != {}
    assert workspace.read("step").tolist() == [2]


def _loop(program: StepProgram) -> WhileGraph:
    ((_, op),) = program.ops()
    assert isinstance(op, WhileGraph)
    return op


def test_it_prints_as_what_it_is() -> None:
    text = Looped().at(EIGHT).describe(buffers=False).splitlines()
    assert text[:2] == ["program powers (round)", "phase powers"]
    assert text[2].startswith("  while_graph powers (loop_go != 0, after launch loop_control(")
    assert text[3] == "    graph_launch power {"
    assert text[-2].startswith("    launch loop_control(")


def test_it_is_about_rounds_alone() -> None:
    parts = Looped()
    assert apply(parts.program(), EIGHT, parts) == apply(parts.program(), SIX, parts)
    assert budget(parts.program(), EIGHT) == budget(parts.program(), SIX)
    round_ = parts.at(SIX)
    assert not round_.takes_turns
    assert budget(round_, SIX).limits == ()
    with pytest.raises(BudgetError, match="stage epoch-graph: 2 graph_launch calls"):
        budget(round_, EIGHT).check(round_.calls(), round_)
    assert 8 not in {stage.number for stage in step_stages()}


def test_host_code_in_a_step_refuses_it_by_name() -> None:
    parts = Looped()
    step = apply(parts.program(), SIX, parts)
    asks = replace(
        step,
        name="collect",
        phases=(Phase("env_step", (Host("step the simulator", lambda _: None),)), *step.phases),
    )
    made = round_program("powers", [(asks, 1)])
    reason = (
        "host step the simulator of program collect stands outside a graph, so the host has to run"
        " each step"
    )
    assert refusals(made, EIGHT) == {8: reason}
    assert refusals(made, SIX) == {}
    assert refusals(parts.program(), EIGHT) == {}
    with pytest.raises(ProgramError, match="host step the simulator of program collect"):
        apply(made, EIGHT, parts)


WORK = Memset(Ref("counters"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((), "got nothing"),
        ((control(),), "a turn is ops that work"),
        ((control(), WORK), "and last the launch that decides"),
        (
            (
                WORK,
                Launch("relu_epilogue", {"extra": Ref("x"), "out": Ref("x"), "n": 1, "grad": 0}),
            ),
            r"kernel relu_epilogue can't end the loop: it takes no go \(out i32\)",
        ),
    ],
)
def test_what_is_no_loop(body: tuple[Op, ...], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        WhileGraph("loop", body)


def test_loops_that_no_device_could_run() -> None:
    buffers = (ORDER, REPORT, GO, COUNTERS, SKIP)

    def made(*ops: Op) -> StepProgram:
        return StepProgram("p", "round", (Phase("p", ops),), buffers)

    loop = WhileGraph("loop", (WORK, control()))
    require_runnable(made(loop))
    inner = GraphLaunch("a", (GraphLaunch("b", (WORK,)),))
    require_runnable(made(WhileGraph("loop", (inner, control()))))
    with pytest.raises(ProgramError, match="stands in a graph; a loop is launched by itself"):
        require_runnable(made(GraphLaunch("g", (loop,))))
    with pytest.raises(ProgramError, match="stands in a graph; a loop is launched by itself"):
        require_runnable(made(WhileGraph("outer", (loop, control()))))
    with pytest.raises(ProgramError, match="record_event 0 stands in a loop, where no event"):
        require_runnable(made(WhileGraph("loop", (WORK, RecordEvent(0, ""), control()))))
    with pytest.raises(ProgramError, match="host f stands in a graph"):
        require_runnable(made(WhileGraph("loop", (Host("f", lambda _: None), control()))))
    deep = GraphLaunch("a", (GraphLaunch("b", (GraphLaunch("c", (WORK,)),)),))
    with pytest.raises(ProgramError, match="nested more than two deep"):
        require_runnable(made(WhileGraph("loop", (deep, control()))))


def test_numbers_are_counted_by_the_device() -> None:
    """Turns after the first are in no trace; how many there were is in the counters."""
    program = Looped().at(EIGHT)
    workspace = Workspace(HostDevice())
    runner = Runner(program, workspace)
    workspace.ensure(program.buffers)
    workspace.host["loop_order"][:] = (9, 0, 0, 0)
    runner.step()
    assert workspace.read("counters")[7] == 9
    np.testing.assert_array_equal(workspace.read("loop_report"), [9, 0, 1])


def test_steps_that_collect_nothing_make_no_round() -> None:
    parts = Looped()
    step = apply(parts.program(), SIX, parts)
    made = round_program("powers", [(StepProgram("collect", "collect", (), ()), 1), (step, 1)])
    reason = "program collect has no work, so there are no rounds to loop over"
    assert refusals(made, EIGHT) == {8: reason}
    assert refusals(made, SIX) == {}
