"""Times of a step, of several candidates side by side: a program at sets of stages, and its peers.

A sample is many back-to-back steps between two waits for the device, so that it is long against
the clock and against the wait (`MIN_SAMPLE_S`); the host's clock is read outside both. A round
takes one sample of each candidate, every other round in the opposite order: a machine that drifts
slows them alike, and a ratio is taken within a round before it is summarised over the rounds.
"""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onegraph.kernels.device.base import Device
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.program import GraphLaunch, Launch, LaunchGroup, Op, RecordEvent, StepProgram
from onegraph.stages.registry import StageSet, by_number, format_set
from onegraph.stages.runner import Runner
from onegraph.stages.subject import Subject, SubjectRun

#: Seconds that a sample on a GPU lasts at least. On the host device a sample is one step.
MIN_SAMPLE_S = 5e-3

#: Steps that a sample has at most, should the clock never move.
MAX_STEPS = 1 << 16

#: Steps before the first sample: the first warms up and captures, the others fill the caches.
WARM_UP_STEPS = 8

FORMAT = "onegraph-bench-1"

Clock = Callable[[], float]


class BenchError(ValueError):
    """A benchmark that can't be run as asked; the message names the value and the remedy."""


class Candidate(Protocol):
    """Something whose step is timed."""

    @property
    def label(self) -> str: ...

    @property
    def quantum(self) -> int:
        """Steps that it can only take together: a sample is a multiple of it."""
        ...

    def run(self, steps: int) -> None:
        """Ask for `steps` steps, one after the other. Need not wait for the device."""
        ...

    def wait(self) -> None:
        """Wait for every step that was asked for."""
        ...

    def calls(self) -> Mapping[str, int]:
        """Device calls of the last step by ledger kind; empty if nobody counts them."""
        ...

    def nodes(self) -> int:
        """Nodes of its graphs; 0 if it has none, or nobody counts them."""
        ...


@dataclass(frozen=True)
class Spread:
    """The median of some samples, and their 10th and 90th percentiles."""

    median: float
    low: float
    high: float


def spread(samples: Sequence[float]) -> Spread:
    """Percentiles of `samples` (at least one), linearly interpolated."""
    return Spread(*(float(q) for q in np.percentile(samples, (50, 10, 90))))


@dataclass(frozen=True)
class Entry:
    """One candidate's times.

    Attributes:
        samples_us: microseconds a step, one sample a round, in the order of the rounds.
        steps: steps of a sample.
        calls: device calls of a step by ledger kind, of a whole sample where that is one launch;
            empty for a peer.
        nodes: nodes of its graphs; 0 for what runs without one, and for a peer.
    """

    label: str
    samples_us: tuple[float, ...]
    steps: int
    calls: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0

    @property
    def time(self) -> Spread:
        """Microseconds a step."""
        return spread(self.samples_us)

    def speed_up(self, base: Entry) -> Spread:
        """How many times faster than `base` it is: the ratios of the rounds that both were in."""
        pairs = zip(base.samples_us, self.samples_us, strict=True)
        return spread([theirs / own for theirs, own in pairs])


@dataclass(frozen=True)
class BenchResult:
    """What one interleaved run measured.

    Attributes:
        subject, program: whose step was timed.
        device: the device in words.
        entries: in the order of the candidates; the ratios are to the first.
        skipped: candidates that were not there, and why.
    """

    subject: str
    program: str
    device: str
    entries: tuple[Entry, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return len(self.entries[0].samples_us)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it: times in microseconds a step, ratios to the first entry."""
        base = self.entries[0]
        return {
            "format": FORMAT,
            "subject": self.subject,
            "program": self.program,
            "device": self.device,
            "rounds": self.rounds,
            "entries": [
                {
                    "label": e.label,
                    "us": asdict(e.time),
                    "speed_up": asdict(e.speed_up(base)),
                    "steps_per_sample": e.steps,
                    "calls": dict(e.calls),
                    "nodes": e.nodes,
                    "samples_us": list(e.samples_us),
                }
                for e in self.entries
            ],
            "skipped": dict(self.skipped),
        }


@runtime_checkable
class LoopedRun(Protocol):
    """A run whose device can take many steps of a program by itself."""

    def loop_of(self, program: str) -> tuple[Runner, Callable[[int], StepCounts]] | None:
        """Its runner, and what launches that many steps at once; ``None`` at these stages."""
        ...


class ProgramSteps:
    """One program of a run as a candidate; the run's other programs are not stepped.

    Where the device can take the steps by itself, a sample is one launch.
    """

    quantum = 1

    def __init__(self, label: str, run: SubjectRun, program: str) -> None:
        if program not in run.runners:
            raise BenchError(
                f"program {program!r} is none of {', '.join(run.runners)}; name one of those"
            )
        self._label, self._subject_run = label, run
        self._runner = run.runners[program]
        self._looped = run.loop_of(program) if isinstance(run, LoopedRun) else None
        self._calls: Counter[str] = Counter()

    @property
    def label(self) -> str:
        return self._label

    @property
    def runner(self) -> Runner:
        """The program's runner."""
        return self._runner

    @property
    def launched(self) -> StepProgram:
        """What a sample launches: the program, or the device's own loop over it."""
        return (self._runner if self._looped is None else self._looped[0]).program

    def run(self, steps: int) -> None:
        if self._looped is not None:
            counts = self._looped[1](steps)
        else:
            step = self._runner.step
            for _ in range(steps):
                counts = step()
        self._calls = counts.by_kind()

    def wait(self) -> None:
        self._runner.device.synchronize()

    def calls(self) -> Mapping[str, int]:
        return self._calls

    def nodes(self) -> int:
        runner = self._runner if self._looped is None else self._looped[0]
        return sum(runner.graph_nodes().values())

    def close(self) -> None:
        """Free what the run holds."""
        self._subject_run.close()


# ---------------------------------------------------------------- sampling


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector out of a sample; it runs between the samples instead."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _only_own_garbage() -> Iterator[None]:
    """Leave what is there now out of the collections between samples: a large process has much.

    Objects that somebody else had frozen are thawed with it afterwards, which costs them a visit
    by later collections.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _seconds(candidate: Candidate, steps: int, clock: Clock) -> float:
    candidate.wait()
    with no_collection():
        before = clock()
        candidate.run(steps)
        candidate.wait()
        return clock() - before


def steps_per_sample(candidate: Candidate, min_sample_s: float, clock: Clock) -> int:
    """Steps of `candidate` that last `min_sample_s`, after its warm-up: a multiple of its quantum.

    It doubles the steps until they last a quarter of that, and takes the rest from the rate.
    """
    quantum = candidate.quantum
    steps = quantum
    while True:
        seconds = _seconds(candidate, steps, clock)
        if seconds >= min_sample_s / 4 or steps >= MAX_STEPS:
            break
        steps *= 2
    if seconds <= 0:
        return steps
    wanted = math.ceil(min_sample_s * steps / seconds / quantum) * quantum
    return min(max(wanted, quantum), max(MAX_STEPS, quantum))


def interleave(
    candidates: Sequence[Candidate],
    *,
    rounds: int,
    min_sample_s: float,
    clock: Clock = time.perf_counter,
) -> tuple[Entry, ...]:
    """Time the candidates in turn, `rounds` times over, after a warm-up of each.

    Raises:
        BenchError: no candidate, a label twice, or no round.
    """
    labels = [c.label for c in candidates]
    if not labels:
        raise BenchError("there is nothing to time; name at least one set of stages")
    if twice := [label for label, n in Counter(labels).items() if n > 1]:
        raise BenchError(f"{twice[0]!r} is to be timed twice; name it once")
    if rounds < 1:
        raise BenchError(f"rounds = {rounds} measures nothing; use at least 1")
    for candidate in candidates:  # captures, which thaws what is frozen
        candidate.run(-(-WARM_UP_STEPS // candidate.quantum) * candidate.quantum)
    samples: list[list[float]] = [[] for _ in candidates]
    with _only_own_garbage():
        steps = [steps_per_sample(candidate, min_sample_s, clock) for candidate in candidates]
        for number in range(rounds):
            order = range(len(candidates))
            for i in order if number % 2 == 0 else reversed(order):
                samples[i].append(_seconds(candidates[i], steps[i], clock) / steps[i] * 1e6)
    return tuple(
        Entry(c.label, tuple(times), k, dict(c.calls()), c.nodes())
        for c, times, k in zip(candidates, samples, steps, strict=True)
    )


def bench(
    subject: Subject,
    sets: Sequence[StageSet],
    device: Device,
    *,
    program: str = "learn",
    rounds: int = 20,
    peers: Sequence[Candidate] = (),
    skipped: Mapping[str, str] | None = None,
    min_sample_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> BenchResult:
    """Time a step of `program` with each of `sets` on, and the `peers`, in one interleaved run.

    Args:
        subject: whose program it is.
        sets: the first is what the ratios are to.
        device: where the sets run; all of them are there at once.
        program: the name of the program that is stepped.
        rounds: samples of each.
        peers: further candidates, timed after the sets in each round.
        skipped: peers that are not there, and why, for the result.
        min_sample_s: what a sample lasts at least; default: `MIN_SAMPLE_S`, or one step on the
            host device.
        clock: seconds.

    Raises:
        BenchError: as `interleave`, or no such program.
    """
    least = least_sample(device) if min_sample_s is None else min_sample_s
    with ExitStack() as stack:
        candidates: list[Candidate] = []
        for stages in sets:
            run = subject.at(stages, device)
            stack.callback(run.close)
            candidates.append(ProgramSteps(set_label(subject, stages), run, program))
        candidates += peers
        entries = interleave(candidates, rounds=rounds, min_sample_s=least, clock=clock)
    return BenchResult(subject.name, program, device_words(device), entries, dict(skipped or {}))


def least_sample(device: Device) -> float:
    """Seconds that a sample on `device` lasts at least."""
    return 0.0 if device.kind == "host" else MIN_SAMPLE_S


def set_label(subject: Subject, stages: StageSet) -> str:
    """A set in short form, with the name of its last stage: ``0-6 parent-graph``."""
    return f"{format_set(stages)} {by_number(max(stages, default=0), subject.known).name}"


def device_words(device: Device) -> str:
    """The device's name, and what multiplies its matrices where it has a choice."""
    backend = getattr(device, "matmul_backend", "")
    return f"{device.name}, matmuls by {backend}" if backend else device.name


# ---------------------------------------------------------------- where the time goes


@dataclass(frozen=True)
class PhaseProfile:
    """Where a step's device time goes.

    Attributes:
        phases_us: microseconds by phase of timed steps, in the order of the program.
        ops: what each phase does, one label an op; in a graph an op is a node.
        plain_us: microseconds of a step without events, by the host's clock.
    """

    phases_us: Mapping[str, Spread]
    ops: Mapping[str, tuple[str, ...]]
    plain_us: Spread

    @property
    def total_us(self) -> float:
        """The phases' medians together. Event nodes cost time too: it exceeds a plain step."""
        return sum(s.median for s in self.phases_us.values())

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "phases": {
                name: {"us": asdict(self.phases_us[name]), "ops": list(self.ops[name])}
                for name in self.phases_us
            },
            "plain_us": asdict(self.plain_us),
        }


def phase_ops(program: StepProgram) -> dict[str, tuple[str, ...]]:
    """The labels of each phase's ops, graphs opened, in the order of the phases that have any."""
    found: dict[str, list[str]] = {}
    for phase, op, _ in program.all_ops():
        if not isinstance(op, (GraphLaunch, RecordEvent)):
            found.setdefault(phase, []).append(_short(op))
    return {phase: tuple(labels) for phase, labels in found.items()}


def _short(op: Op) -> str:
    """An op by what it runs, not by what it runs on: equal work has equal labels."""
    if isinstance(op, LaunchGroup):
        return f"{len(op.members)} x {op.kernel}"
    return op.kernel if isinstance(op, Launch) else op.kind


def profile_phases(
    run: SubjectRun,
    program: str,
    *,
    rounds: int = 32,
    min_sample_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> PhaseProfile:
    """Time the phases of a run's `program` by its boundary events, beside plain steps.

    Raises:
        BenchError: the program has no boundary events (stage 3 is off), or there is no round.
    """
    steps = ProgramSteps(program, run, program)
    runner = steps.runner
    if not runner.keeps_times:
        raise BenchError(
            f"program {program} has no events at its phases' boundaries; turn stage 3,"
            " phase-events, on"
        )
    if rounds < 1:
        raise BenchError(f"rounds = {rounds} measures nothing; use at least 1")
    least = least_sample(runner.device) if min_sample_s is None else min_sample_s
    times: dict[str, list[float]] = {}
    plain: list[float] = []
    k = interleave([steps], rounds=1, min_sample_s=least, clock=clock)[0].steps
    for _ in range(rounds):
        plain.append(_seconds(steps, k, clock) / k * 1e6)
        # Read at once: a run keeps few sets of events.
        runner.step(timed=True)
        for name, values in runner.timings().phases.items():
            times.setdefault(name, []).extend(ms * 1e3 for ms in values)
    ops = phase_ops(runner.program)
    return PhaseProfile(
        {name: spread(values) for name, values in times.items()},
        {name: ops.get(name, ()) for name in times},
        spread(plain),
    )
