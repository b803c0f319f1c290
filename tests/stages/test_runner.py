"""The runner: warm-up and capture, moved buffers, failures half way, timings."""

import gc

import numpy as np
import pytest
import toy

from onegraph.kernels.device import DeviceError, HostDevice
from onegraph.stages import Buffer, Phase, Ref, Runner, StepProgram, Workspace, apply
from onegraph.stages.program import Alloc, Copy, Free, Host, MatmulOp, Memset, RecordEvent
from onegraph.stages.registry import ALL

CHILDREN = frozenset({1, 2, 4, 5})
PARENT = ALL - {3}
GRAPHED = pytest.mark.parametrize("stages", [CHILDREN, PARENT], ids=["children", "parent"])


class Faulty(HostDevice):
    """Raises once, at the launch of kernel `at`: eagerly, or while capturing."""

    def __init__(self, at: str = "", *, capturing: bool = False) -> None:
        super().__init__()
        self.at, self.capturing = at, capturing

    def _launch(self, launch) -> None:
        if launch.spec.name == self.at and (self._capture is not None) == self.capturing:
            self.at = ""
            self.fail("CUDA_ERROR_LAUNCH_FAILED", f"launch {launch.spec.name}", "planted")
        super()._launch(launch)


def built(stages: frozenset[int], n: int = 8) -> StepProgram:
    parts = toy.Toy(n)
    return apply(parts.program(), stages, parts)


def persistent(workspace: Workspace) -> dict[str, np.ndarray]:
    return {b.name: workspace.read(b.name) for b in workspace.buffers.values() if b.persistent}


def restore(workspace: Workspace, state: dict[str, np.ndarray]) -> None:
    for name, values in state.items():
        workspace.write(name, values)


# ---------------------------------------------------------------- warm-up and capture


@GRAPHED
def test_step_0_runs_eagerly_then_captures(stages) -> None:
    runner = Runner(built(stages), Workspace(HostDevice()))
    assert runner.graph_nodes() == {}
    first = runner.step()
    kinds = first.by_kind()
    assert (kinds["launch"], kinds["matmul"], kinds["memset"]) == (6, 1, 1)
    assert (kinds["capture"], kinds["captured"], kinds["graph_launch"]) == (5, 8, 0)
    assert first.counts["multiply", "captured"] == 3
    assert first.counts["multiply", "launch"] == 1
    assert set(runner.step().by_kind()) == {"graph_launch"}


def test_the_first_timed_step_instantiates_nothing() -> None:
    runner = Runner(built(ALL), Workspace(HostDevice()))
    assert runner.step().by_kind()["instantiate"] == 2  # the plain form and the timed one
    assert runner.step(timed=True).by_kind()["instantiate"] == 0


def test_kernels_run_from_the_module_of_their_place() -> None:
    device = HostDevice()
    runner = Runner(built(PARENT), Workspace(device))
    runner.step()
    runner.step()
    assert {module for _, module in device.launch_sites} == {"graphed"}
    assert all(sites == {"warm-up", "captured"} for sites in device.launch_sites.values())


@GRAPHED
def test_collecting_garbage_while_capturing_does_no_harm(stages, monkeypatch) -> None:
    launch = HostDevice._launch

    def collecting(self, prepared) -> None:
        gc.collect()
        launch(self, prepared)

    monkeypatch.setattr(HostDevice, "_launch", collecting)
    seen = toy.trajectory(built(stages), 3)
    monkeypatch.undo()
    assert seen == toy.trajectory(built(frozenset({1})), 3)


# ---------------------------------------------------------------- moved buffers


@GRAPHED
def test_another_size_on_the_same_workspace(stages) -> None:
    """The old graphs are let go, what kept its shape keeps its contents, results are right."""
    device = HostDevice()
    workspace = Workspace(device)
    old = Runner(built(stages), workspace)
    for _ in range(3):
        old.step()
    taken, step = device._allocated, workspace.read("step")
    new = Runner(built(stages, 5), workspace)
    counts = new.step().by_kind()
    assert counts["capture"] == 5
    assert old.graph_nodes() == {}
    assert device._allocated < taken
    assert workspace.read("v").shape == (5,)
    assert workspace.read("step") == step + 1

    fresh = Workspace(HostDevice())
    reference = Runner(built(frozenset({1}), 5), fresh)
    reference._bind_all()
    fresh.write("step", step)
    fresh.write("step_host", step)
    fresh.write("scale", np.zeros(1, np.float32))
    reference.step()
    for _ in range(2):
        new.step()
        reference.step()
    assert toy.results(workspace) == toy.results(fresh)


@GRAPHED
def test_a_graph_is_never_replayed_over_a_moved_buffer(stages) -> None:
    workspace = Workspace(HostDevice())
    runner = Runner(built(stages), workspace)
    runner.step()
    runner.step()
    graph = runner._graphs[0].plain
    workspace.ensure([Buffer("w", (3,), "f32")])  # someone else wants it otherwise
    with pytest.raises(DeviceError, match="capture it again"):
        workspace.device.graph_launch(graph)
    assert runner.step().by_kind()["capture"] == 5  # bound anew, on its own declaration
    assert workspace.read("w").shape == (8,)


@GRAPHED
def test_two_runners_share_a_workspace_and_their_graphs_stay(stages) -> None:
    workspace = Workspace(HostDevice())
    one, two = (Runner(built(stages), workspace) for _ in range(2))
    for runner in (one, two):
        runner.step()
    seen = []
    for runner in (one, two, one, two):
        assert set(runner.step().by_kind()) == {"graph_launch"}
        seen.append(toy.results(workspace))
    assert seen == toy.trajectory(built(frozenset({1})), 6)[2:]


def test_runners_that_differ_in_what_is_persistent_leave_each_other_be() -> None:
    def program(name: str, *, keep: bool) -> StepProgram:
        bump = Host("bump", _bump, ("x",), ("x",))
        x = Buffer("x", (1,), "f32", "host", persistent=keep)
        return StepProgram(name, "learn", (Phase("a", (bump,)),), (x,))

    workspace = Workspace(HostDevice())
    runners = [
        Runner(program("p", keep=True), workspace),
        Runner(program("q", keep=False), workspace),
    ]
    for _ in range(3):
        for runner in runners:
            runner.step()
    assert workspace.read("x").tolist() == [6.0]
    assert workspace.generation == 0
    assert workspace.buffers["x"].persistent


def _bump(h) -> None:
    h["x"] += 1


# ---------------------------------------------------------------- failures


@GRAPHED
@pytest.mark.parametrize("capturing", [False, True], ids=["warm-up", "capture"])
def test_after_a_failure_in_the_first_step(stages, capturing: bool) -> None:
    device = Faulty("toy_scale", capturing=capturing)
    workspace = Workspace(device)
    runner = Runner(built(stages), workspace)
    runner._bind_all()
    state = persistent(workspace)
    with pytest.raises(DeviceError, match="in phase multiply: planted") as error:
        runner.step()
    assert error.value.phase == "multiply"
    assert runner.index == 0
    restore(workspace, state)
    seen = []
    for _ in range(3):
        runner.step()
        seen.append(toy.results(workspace))
    assert seen == toy.trajectory(built(frozenset({1})), 3)


@GRAPHED
def test_a_failed_capture_holds_no_buffer(stages) -> None:
    """Even while the error is at hand, which keeps the frames it passed alive."""
    device = Faulty("toy_norm", capturing=True)
    workspace = Workspace(device)
    runner = Runner(built(stages), workspace)
    with pytest.raises(DeviceError) as error:
        runner.step()
    workspace.close()
    assert device._allocated == 0
    assert error.value.phase == "publish"


@GRAPHED
def test_a_kernel_that_fails_in_a_replay(stages, monkeypatch) -> None:
    workspace = Workspace(HostDevice())
    runner = Runner(built(stages), workspace)
    runner.step()
    state = persistent(workspace)
    executable = runner._graphs[-1].plain
    work = list(executable.handle)

    def broken() -> None:
        raise FloatingPointError("planted")

    executable.handle[:] = [*work[:-1], broken]
    with pytest.raises(FloatingPointError):
        runner.step()
    executable.handle[:] = work
    restore(workspace, state)
    runner.step()
    assert toy.results(workspace) == toy.trajectory(built(frozenset({1})), 2)[-1]


def test_an_eager_failure_names_the_phase() -> None:
    runner = Runner(built(frozenset({1, 2, 4})), Workspace(Faulty("toy_norm")))
    with pytest.raises(DeviceError) as error:
        runner.step()
    assert (error.value.phase, error.value.name) == ("publish", "CUDA_ERROR_LAUNCH_FAILED")


# ---------------------------------------------------------------- scratch and host ops


def scratch_program(*inside, space: str = "device") -> StepProgram:
    buffers = (
        Buffer("t", (4,), "f32", transient=True),
        Buffer("x", (4,), "f32", initial=lambda: np.arange(4, dtype=np.float32)),
        Buffer("h", (4,), "f32", "host"),
    )
    ops = (Alloc("t"), *inside, Free("t"))
    return StepProgram("s", "learn", (Phase("a", ops),), buffers)


def test_scratch_takes_part_in_every_kind_of_op() -> None:
    t, x = Ref("t"), Ref("x")
    program = scratch_program(
        Memset(t),
        MatmulOp(2, 2, 2, x, x, t),
        Copy(Ref("x", 0, 1), Ref("t", 3, 1), "dtod"),
        Copy(Ref("h"), t, "dtoh"),
        Memset(t, blocking=True),
        Copy(t, Ref("h"), "htod"),
        Copy(Ref("x", 1, 1), Ref("t", 0, 1), "dtod"),
    )
    device = HostDevice()
    workspace = Workspace(device)
    runner = Runner(program, workspace)
    runner.step()
    # [[0, 1], [2, 3]] squared is [[2, 3], [6, 11]]
    assert workspace.read("h").tolist() == [2, 3, 6, 11]
    assert workspace.read("x").tolist() == [11, 2, 2, 3]
    taken = device._allocated
    for _ in range(3):
        assert runner.step().counts == program.calls()
    assert device._allocated == taken


def test_scratch_of_a_failed_step_is_freed() -> None:
    fail = [True]

    def sometimes(h) -> None:
        if fail.pop() if fail else False:
            raise ValueError("planted")

    device = HostDevice()
    workspace = Workspace(device)
    runner = Runner(scratch_program(Host("f", sometimes)), workspace)
    with pytest.raises(ValueError, match="planted"):
        runner.step()
    assert "t" not in workspace.arrays
    assert device._allocated == 4 * 4
    runner.step()
    assert device._allocated == 4 * 4


def test_a_host_op_gets_what_it_names() -> None:
    got = {}

    def look(h) -> None:
        got.update(h)

    buffers = tuple(Buffer(n, (1,), "f32", "host") for n in "abc")
    op = Host("look", look, ("a", "b"), ("b",))
    use = Host("use", lambda h: None, ("c",))
    Runner(
        StepProgram("p", "learn", (Phase("a", (op, use)),), buffers), Workspace(HostDevice())
    ).step()
    assert set(got) == {"a", "b"}
    assert got["b"].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        got["a"][0] = 1


# ---------------------------------------------------------------- timings


@pytest.mark.parametrize("stages", [{3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}, ALL], ids=str)
@pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")
def test_times_are_of_the_phases_and_the_latest_timed_steps(stages) -> None:
    runner = Runner(built(frozenset(stages)), Workspace(HostDevice()), timed_sets=3)
    for index in range(9):
        runner.step(timed=index % 2 == 0)  # 0, 2, 4, 6, 8
    times = runner.timings()
    assert times.steps == (4, 6, 8)
    assert list(times.phases) == ["draw", "count", "multiply", "publish", "idle", "raise"]
    for values in times.phases.values():
        assert len(values) == 3
        assert all(ms >= 0 for ms in values)
    assert runner.timings().steps == ()  # read once
    runner.step(timed=True)
    assert runner.timings().steps == (9,)


def test_event_sets_are_made_once_and_reused(monkeypatch) -> None:
    made = []
    create = HostDevice._create_event
    monkeypatch.setattr(
        HostDevice, "_create_event", lambda self, label: made.append(label) or create(self, label)
    )
    runner = Runner(built(ALL), Workspace(HostDevice()), timed_sets=2)
    assert len(made) == 2 * 7
    sets = []
    for _ in range(5):
        runner.step(timed=True)
        sets.append(runner.event(0))
    assert len(made) == 2 * 7
    assert sets[0] is sets[2] is sets[4]
    assert sets[1] is sets[3]
    assert sets[0] is not sets[1]


def test_an_event_set_that_a_failed_step_overwrote_is_not_reported() -> None:
    fail: list[bool] = []

    def maybe(h) -> None:
        if fail:
            fail.clear()
            raise ValueError("planted")

    ops = (RecordEvent(0, "a"), Host("f", maybe), RecordEvent(1, ""))
    program = StepProgram("p", "learn", (Phase("a", ops),), ())
    runner = Runner(program, Workspace(HostDevice()), timed_sets=2)
    runner.step(timed=True)
    runner.step(timed=True)
    fail.append(True)
    with pytest.raises(ValueError, match="planted"):
        runner.step(timed=True)  # had begun to record into the set of step 0
    assert runner.timings().steps == (1,)


def test_without_stage_3_there_are_no_times() -> None:
    runner = Runner(built(PARENT), Workspace(HostDevice()))
    runner.step(timed=True)
    times = runner.timings()
    assert (times.steps, times.phases) == ((), {})


def test_no_sets_mean_no_times() -> None:
    runner = Runner(built(ALL), Workspace(HostDevice()), timed_sets=0)
    runner.step(timed=True)
    assert set(runner.step(timed=True).by_kind()) == {"graph_launch"}
    assert runner.timings().steps == ()
