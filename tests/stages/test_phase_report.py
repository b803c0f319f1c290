"""The stall diagnosis: on planted times, and on steps that run against a clock that tests turn."""

from types import SimpleNamespace

import pytest

from onegraph.kernels.device import HostDevice
from onegraph.stages import Buffer, Phase, PhaseTimes, Ref, Runner, StepProgram, Workspace
from onegraph.stages.phase_report import phase_report, time_phases
from onegraph.stages.program import Host, Memset
from onegraph.stages.s3_phase_events import rewrite


def times(phases, host=None):
    """One timed step."""
    return PhaseTimes(
        (0,),
        {name: (ms,) for name, ms in phases.items()},
        {name: (ms,) for name, ms in (host or {}).items()},
    )


# ---------------------------------------------------------------- planted times


def test_nothing_timed_gives_no_report():
    assert phase_report(PhaseTimes((), {}), 1.0) is None


def test_phases_that_fill_the_step_name_the_slowest():
    report = phase_report(times({"forward": 1.0, "adam": 2.0, "aux": 1.0}), 5.0, 6.5)
    assert report.phases_ms == 4.0
    assert report.busy_share == 0.8
    assert (report.step_ms, report.wall_ms) == (5.0, 6.5)
    assert report.diagnosis == "the slowest phase is adam: 2.000 ms, 50% of them"


def test_a_lone_steps_latency_is_no_stall_of_steps_that_follow_one_another():
    """As measured of one graph launch on an H200: 83 us of phases, 234 us alone, 72 us in a row."""
    report = phase_report(times({"draw": 0.05, "adam": 0.033}), 0.234, 0.072)
    assert report.busy_share == 1.0
    assert report.diagnosis.startswith("the slowest phase is draw")


def test_phases_far_shorter_than_the_step_are_a_stall():
    report = phase_report(times({"forward": 0.5, "adam": 0.5}), 4.0)
    assert report.busy_share == 0.25
    assert "at work in 25% of a 4.000 ms step" in report.diagnosis
    assert "waits on the host (pipeline stall, launch-bound)" in report.diagnosis
    assert "the phases take 1.000 ms, so 3.000 ms lie outside them" in report.diagnosis


def test_a_phase_in_which_the_host_is_at_work_is_a_stall_although_the_phases_fill_the_step():
    report = phase_report(times({"draw": 7.0, "adam": 1.0}, {"draw": 6.5, "adam": 0.1}), 8.0)
    assert report.phases_ms == 8.0
    assert report.busy_share == pytest.approx(1.4 / 8)
    assert "longest in draw, where the host is at work for 6.500 ms" in report.diagnosis


def test_a_host_that_runs_ahead_is_no_stall():
    """It hands over work for 3 ms in a phase that lasts 1 ms: it can have waited 1 ms at most."""
    report = phase_report(times({"draw": 1.0, "adam": 9.0}, {"draw": 3.0, "adam": 0.0}), 10.0)
    assert report.busy_share == 0.9
    assert report.diagnosis.startswith("the slowest phase is adam")


def test_the_busy_share_is_of_the_step_whose_wall_time_it_was():
    """The last timed step is the one that was run alone; the ones before may have overlapped."""
    planted = PhaseTimes((3, 9), {"adam": (8.0, 2.0)}, {"adam": (0.0, 0.0)})
    report = phase_report(planted, 4.0)
    assert (report.mean["adam"], report.last["adam"]) == (5.0, 2.0)
    assert report.busy_share == 0.5


# ---------------------------------------------------------------- steps against a clock


class Clock:
    """Seconds that pass only when somebody spends them."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("onegraph.stages.runner.perf_counter", lambda: self.now)
        monkeypatch.setattr(
            "onegraph.kernels.device.host.time", SimpleNamespace(perf_counter=lambda: self.now)
        )

    def spend(self, ms):
        self.now += ms / 1e3


class TimedDevice(HostDevice):
    """Zeroing a buffer takes `cost[name]` ms, while the host waits, as on the host device."""

    def __init__(self, clock, cost):
        super().__init__()
        self.clock, self.cost = clock, cost

    def _memset(self, dst):
        self.clock.spend(self.cost[dst.name])
        super()._memset(dst)


class QueueDevice(TimedDevice):
    """As a GPU: a call takes the host 0.01 ms, and its work begins when the work before is done."""

    runs_later = True

    def __init__(self, clock, cost):
        super().__init__(clock, cost)
        self.free_at = 0.0

    def _memset(self, dst):
        self.clock.spend(0.01)
        self.free_at = max(self.free_at, self.clock.now) + self.cost[dst.name] / 1e3
        HostDevice._memset(self, dst)

    def _record_event(self, event):
        self.free_at = event.handle = max(self.free_at, self.clock.now)

    def _synchronize(self):
        self.clock.now = max(self.clock.now, self.free_at)


def step(device, *, host_ms, repeat=1):
    """The report of a timed step: `prepare` with a host op, then `work` on the device."""
    clock = device.clock
    work = tuple(Memset(Ref("b")) for _ in range(repeat))
    program = StepProgram(
        "learn",
        "learn",
        (
            Phase("prepare", (Host("sleep", lambda h: clock.spend(host_ms)), Memset(Ref("a")))),
            Phase("work", work),
        ),
        (Buffer("a", (4,), "f32"), Buffer("b", (4,), "f32")),
    )
    runner = Runner(rewrite(program, parts=None), Workspace(device))
    runner.step()
    device.synchronize()
    begin = clock.now
    runner.step(timed=True)
    device.synchronize()
    return phase_report(runner.timings(), (clock.now - begin) * 1e3)


@pytest.mark.parametrize("kind", [TimedDevice, QueueDevice])
def test_a_planted_host_sleep_is_a_stall_in_its_phase(monkeypatch, kind):
    report = step(kind(Clock(monkeypatch), {"a": 1.0, "b": 2.0}), host_ms=20.0)
    assert report.phases_ms == pytest.approx(report.step_ms)  # the events can't tell
    assert report.busy_share < 0.2
    assert "longest in prepare, where the host is at work for 20.0" in report.diagnosis


@pytest.mark.parametrize("kind", [TimedDevice, QueueDevice])
def test_a_planted_slow_kernel_is_that_phase(monkeypatch, kind):
    report = step(kind(Clock(monkeypatch), {"a": 1.0, "b": 20.0}), host_ms=0.1)
    assert report.busy_share > 0.9
    assert report.diagnosis.startswith("the slowest phase is work: 20.0")


def test_many_small_launches_are_launch_bound_on_a_device_with_a_queue(monkeypatch):
    report = step(QueueDevice(Clock(monkeypatch), {"a": 0.001, "b": 0.001}), host_ms=0, repeat=50)
    assert "launch-bound" in report.diagnosis
    assert report.busy_share < 0.1


def test_the_same_launches_are_the_work_itself_on_the_host_device(monkeypatch):
    report = step(TimedDevice(Clock(monkeypatch), {"a": 0.001, "b": 0.001}), host_ms=0, repeat=50)
    assert report.busy_share == pytest.approx(1.0)
    assert report.diagnosis.startswith("the slowest phase is work")


# ---------------------------------------------------------------- several steps, timed alone


def runner_of(device, host_ms):
    """`prepare` with a host op of the next of `host_ms` milliseconds, then 2 ms of `work`."""
    clock, left = device.clock, iter(host_ms)
    program = StepProgram(
        "learn",
        "learn",
        (
            Phase("prepare", (Host("sleep", lambda h: clock.spend(next(left))),)),
            Phase("work", (Memset(Ref("b")),)),
        ),
        (Buffer("b", (4,), "f32"),),
    )
    return Runner(rewrite(program, parts=None), Workspace(device), timed_sets=2)


@pytest.mark.parametrize("kind", [TimedDevice, QueueDevice])
def test_steps_are_timed_alone_and_the_last_is_the_one_that_is_judged(monkeypatch, kind):
    clock = Clock(monkeypatch)
    runner = runner_of(kind(clock, {"b": 2.0}), [5.0, 1.0, 3.0, 8.0])
    runner.step()
    report = time_phases(runner, 3, clock=lambda: clock.now)
    assert report.timed_steps == 3  # more than there are sets of events
    assert report.mean["prepare"] == pytest.approx((1 + 3 + 8) / 3, abs=0.02)
    assert report.last["prepare"] == pytest.approx(8.0, abs=0.02)
    assert report.mean["work"] == pytest.approx(2.0, abs=0.02)
    assert report.host["prepare"] == pytest.approx(4.0, abs=0.02)
    assert report.step_ms == pytest.approx(10.0, abs=0.02)
    assert report.busy_share == pytest.approx(0.2, abs=0.01)
    assert "longest in prepare" in report.diagnosis


def test_a_program_without_boundaries_times_nothing():
    program = StepProgram(
        "learn", "learn", (Phase("work", (Memset(Ref("b")),)),), (Buffer("b", (4,), "f32"),)
    )
    assert time_phases(Runner(program, Workspace(HostDevice())), 3) is None
