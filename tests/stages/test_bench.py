"""The interleaved sampler, by a clock that the candidates move; and the toy's stages on it."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping

import pytest
import toy

from onegraph.kernels.device import HostDevice
from onegraph.stages import STAGES, Runner, Workspace, apply
from onegraph.stages.bench import (
    BenchError,
    BenchResult,
    Entry,
    Spread,
    bench,
    interleave,
    phase_ops,
    profile_phases,
    spread,
    steps_per_sample,
)
from onegraph.stages.registry import ALL, NONE, budget


class Clock:
    """Seconds, which only the candidates move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[tuple[str, int]] = []

    def __call__(self) -> float:
        return self.now


class Steady:
    """A candidate whose step takes `seconds`, times a drift that the clock's time brings."""

    def __init__(self, label: str, clock: Clock, seconds: float, quantum: int = 1) -> None:
        self.label, self.clock, self.seconds, self.quantum = label, clock, seconds, quantum
        self.asked = self.waits = 0

    def run(self, steps: int) -> None:
        self.asked += steps
        self.clock.ran.append((self.label, steps))

    def wait(self) -> None:
        """Asynchronous: the time passes in the wait."""
        self.waits += 1
        self.clock.now += self.asked * self.seconds
        self.asked = 0

    def calls(self) -> Mapping[str, int]:
        return {"launch": 3}

    def nodes(self) -> int:
        return 7


def test_percentiles_are_interpolated():
    assert spread([10.0, 20.0, 30.0]) == Spread(20.0, 12.0, 28.0)
    assert spread([5.0]) == Spread(5.0, 5.0, 5.0)


def test_ratios_are_taken_within_a_round():
    # The machine was twice as slow in the second round, for both: the ratio never moved.
    base, other = Entry("a", (100.0, 200.0), 1), Entry("b", (50.0, 100.0), 1)
    assert other.speed_up(base) == Spread(2.0, 2.0, 2.0)
    assert base.speed_up(other).median == 0.5


def test_a_ratio_needs_the_same_rounds():
    with pytest.raises(ValueError, match="zip"):
        Entry("a", (1.0, 2.0), 1).speed_up(Entry("b", (1.0,), 1))


@pytest.mark.parametrize(
    ("seconds", "quantum", "least", "steps"),
    [
        (0.001, 1, 0.005, 5),
        (0.0015, 1, 0.005, 4),  # 3.3 rounded up
        (1.0, 1, 0.005, 1),
        (0.001, 64, 0.005, 64),
        (0.0001, 8, 0.005, 56),  # 50, in eights
        (0.001, 1, 0.0, 1),
        (0.001, 16, 0.0, 16),
    ],
)
def test_a_sample_lasts_as_long_as_asked_and_is_a_multiple_of_the_quantum(
    seconds, quantum, least, steps
):
    clock = Clock()
    assert steps_per_sample(Steady("a", clock, seconds, quantum), least, clock) == steps


def test_a_clock_that_stands_still_ends_the_search():
    clock = Clock()
    assert steps_per_sample(Steady("a", clock, 0.0), 0.005, clock) == 1 << 16


def test_every_other_round_runs_backwards():
    clock = Clock()
    a, b = Steady("a", clock, 0.002), Steady("b", clock, 0.004)
    entries = interleave([a, b], rounds=3, min_sample_s=0.0, clock=clock)
    assert [label for label, _ in clock.ran[-6:]] == ["a", "b", "b", "a", "a", "b"]
    assert entries[0].samples_us == pytest.approx((2000.0,) * 3)
    assert entries[1].samples_us == pytest.approx((4000.0,) * 3)
    assert entries[1].speed_up(entries[0]).median == pytest.approx(0.5)
    assert (entries[0].calls, entries[0].nodes) == ({"launch": 3}, 7)


def test_what_was_asked_before_a_sample_is_waited_for_outside_it():
    clock = Clock()
    a = Steady("a", clock, 0.001)
    a.run(1000)
    (entry,) = interleave([a], rounds=1, min_sample_s=0.0, clock=clock)
    assert entry.samples_us == pytest.approx((1000.0,))


@pytest.mark.parametrize(
    ("labels", "rounds", "message"),
    [
        ((), 1, "nothing to time"),
        (("a", "a"), 1, "'a' is to be timed twice"),
        (("a",), 0, "rounds = 0"),
    ],
)
def test_what_can_not_be_timed_is_refused(labels, rounds, message):
    clock = Clock()
    with pytest.raises(BenchError, match=message):
        interleave([Steady(x, clock, 1.0) for x in labels], rounds=rounds, min_sample_s=0.0)


# ---------------------------------------------------------------- a subject


class ToyRun:
    """The toy at some stages, as a run of a subject."""

    def __init__(self, stages: frozenset[int], device: HostDevice) -> None:
        parts = toy.Toy()
        program = parts.program("learn")
        self.workspace = Workspace(device)
        self.runners = {"learn": Runner(apply(program, stages, parts), self.workspace)}
        self.budgets = {"learn": budget(program, stages)}
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self.workspace.close()


class ToySubject:
    """The toy as a subject; it keeps the runs it gave."""

    name, known = "toy", STAGES

    def __init__(self) -> None:
        self.runs: list[ToyRun] = []

    def at(self, stages, device) -> ToyRun:
        self.runs.append(ToyRun(stages, device))
        return self.runs[-1]


def test_the_stages_of_a_subject_are_timed_side_by_side():
    subject, peer = ToySubject(), Steady("peer", Clock(), 0.0)
    result = bench(
        subject, [NONE, ALL], HostDevice(), rounds=3, peers=[peer], skipped={"other": "absent"}
    )
    assert [e.label for e in result.entries] == ["0 legacy", "0-8 epoch-graph", "peer"]
    assert result.rounds == 3
    assert result.entries[1].calls == {"graph_launch": 1}
    assert [e.nodes for e in result.entries] == [0, 8, 7]
    assert [e.steps for e in result.entries] == [1, 1, 1]
    assert all(run.closed for run in subject.runs)
    assert result.skipped == {"other": "absent"}


def test_runs_are_closed_when_a_later_one_can_not_be_made():
    subject = ToySubject()
    with pytest.raises(BenchError, match="program 'collect' is none of learn"):
        bench(subject, [NONE, ALL], HostDevice(), program="collect")
    assert [run.closed for run in subject.runs] == [True]


def test_the_result_goes_through_json():
    entries = (Entry("a", (4.0, 4.0), 2), Entry("b", (1.0, 2.0), 3, {"launch": 1}, 5))
    result = BenchResult("toy", "learn", "NumPy", entries)
    found = json.loads(json.dumps(result.to_json()))
    assert found["rounds"] == 2
    assert found["entries"][1] == {
        "label": "b",
        "us": {"median": 1.5, "low": pytest.approx(1.1), "high": pytest.approx(1.9)},
        "speed_up": {"median": 3.0, "low": pytest.approx(2.2), "high": pytest.approx(3.8)},
        "steps_per_sample": 3,
        "calls": {"launch": 1},
        "nodes": 5,
        "samples_us": [1.0, 2.0],
    }


# ---------------------------------------------------------------- phases


def test_phases_list_their_ops():
    parts = toy.Toy()
    assert phase_ops(apply(parts.program(), ALL, parts)) == {
        "draw": ("toy_total", "toy_draw"),
        "count": ("toy_count",),
        "multiply": ("memset", "matmul", "toy_scale"),
        "publish": ("toy_norm",),
        "raise": ("toy_raise",),
    }


@pytest.mark.slow
def test_a_profile_has_every_phase_and_a_plain_step():
    run = ToyRun(ALL, HostDevice())
    profile = profile_phases(run, "learn", rounds=12)  # more than a run has sets of events
    assert list(profile.phases_us) == ["draw", "count", "multiply", "publish", "idle", "raise"]
    assert profile.ops["idle"] == ()
    assert profile.total_us == pytest.approx(sum(s.median for s in profile.phases_us.values()))
    assert all(s.low >= 0.0 for s in profile.phases_us.values())
    assert profile.plain_us.median > 0.0
    found = json.loads(json.dumps(profile.to_json()))
    assert found["phases"]["count"]["ops"] == ["toy_count"]


def test_a_profile_needs_the_events():
    with pytest.raises(BenchError, match="turn stage 3"):
        profile_phases(ToyRun(ALL - {3}, HostDevice()), "learn")


def test_a_profile_needs_a_round():
    with pytest.raises(BenchError, match="rounds = 0"):
        profile_phases(ToyRun(ALL, HostDevice()), "learn", rounds=0)


def test_what_was_there_before_is_no_garbage_of_a_bench(monkeypatch):
    """Collections between samples do not go through it; afterwards it is as it was."""
    seen = []
    monkeypatch.setattr(gc, "collect", lambda *_: seen.append(gc.get_freeze_count()))
    before = gc.get_freeze_count()
    clock = Clock()
    interleave([Steady("a", clock, 1.0)], rounds=2, min_sample_s=0.0, clock=clock)
    first, *between = seen
    assert first == before
    assert all(count > before for count in between)
    assert gc.get_freeze_count() <= before
