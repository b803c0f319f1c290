"""A whole epoch as a subject of benchmarks: environment, inserts and learning, and the host's part.

What `trainer.bench` leaves out is in here: the lanes are stepped, their transitions are inserted
into a replay that is full, and the processor time of this process is taken beside the wall's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from onegraph.guards.markers import hot_path
from onegraph.kernels.common.layout import Counter
from onegraph.kernels.device.base import Device
from onegraph.stages.bench import BenchError, Spread, device_words, no_collection, set_label, spread
from onegraph.stages.registry import StageSet
from onegraph.trainer.bench import BenchSubject, Size, named_size
from onegraph.trainer.trainer import Progress, Trainer

FORMAT = "onegraph-bench-epoch-1"

#: Of an epoch: 1,000 learning steps, and one vector step of 64 lanes before each four of them.
EPOCH: Mapping[str, object] = {
    "env.lanes": 64,
    "loop.epoch_steps": 1000,
    "loop.learns_per_collect": 4,
}


def epoch_subject(size: str = "M", overrides: Mapping[str, object] | None = None) -> BenchSubject:
    """The learning step of a size, with the lanes and the ratio of an epoch.

    Raises:
        TrainerError: no such size.
        BenchError: one that steps no environment.
    """
    named = named_size(size)
    if named.replay_only:
        raise BenchError(f"size {named.name} is the replay alone, which has no epoch; use another")
    with_lanes = Size(named.name, named.states, {**named.fields, **EPOCH})
    return BenchSubject(with_lanes, dict(overrides or {}))


def rounds_of(subject: BenchSubject) -> int:
    """Rounds of an epoch."""
    loop = subject.config.loop
    return -(-loop.epoch_steps // loop.learns_per_collect)


class EpochCandidate(Protocol):
    """Something whose epoch is timed."""

    @property
    def label(self) -> str: ...

    def epoch(self) -> None:
        """Run an epoch, to its end on the device."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class EpochRun:
    """A trainer at a set of stages, over a full replay."""

    def __init__(self, subject: BenchSubject, stages: StageSet, device: Device) -> None:
        self.label = set_label(subject, stages)
        self.rounds = rounds_of(subject)
        self.trainer = Trainer(subject.config, device, stages, environment=subject.environment)
        try:
            self._fill(subject)
        except BaseException:
            self.trainer.close()
            raise

    def _fill(self, subject: BenchSubject) -> None:
        state, shapes = self.trainer.state(), subject.shapes
        collects = shapes.capacity // shapes.lanes
        counters = subject.content["counters"].copy()
        counters[Counter.COLLECT] = collects
        content = {**subject.content, "counters": counters}
        state |= {name: np.asarray(v) for name, v in content.items() if name in state}
        self.trainer.restore(state, Progress(collects=collects))

    @hot_path
    def epoch(self) -> None:
        trainer, loop = self.trainer, self.trainer.config.loop
        if trainer.loops:
            trainer.take_rounds(self.rounds)
            return
        for _ in range(self.rounds):
            for _ in range(loop.learn_every):
                trainer.collect()
            for _ in range(loop.learns_per_collect):
                trainer.learn()
        trainer.wait()

    def close(self) -> None:
        self.trainer.close()


@dataclass(frozen=True)
class EpochEntry:
    """One candidate's epochs.

    Attributes:
        seconds: wall seconds of each.
        host: the processor time of the process over them, as a share of one core.
    """

    label: str
    seconds: tuple[float, ...]
    host: tuple[float, ...]

    @property
    def time(self) -> Spread:
        """Wall seconds."""
        return spread(self.seconds)

    @property
    def host_share(self) -> Spread:
        """Processor time over wall time."""
        return spread(self.host)

    def speed_up(self, base: EpochEntry) -> Spread:
        """How many times faster than `base`, round by round."""
        pairs = zip(base.seconds, self.seconds, strict=True)
        return spread([theirs / own for theirs, own in pairs])


@dataclass(frozen=True)
class EpochResult:
    """What was measured; ratios are to the first entry."""

    subject: str
    device: str
    learn_steps: int
    vector_steps: int
    lanes: int
    entries: tuple[EpochEntry, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it: times in seconds, processor time as a share of one core."""
        base = self.entries[0]
        return {
            "format": FORMAT,
            "subject": self.subject,
            "device": self.device,
            "learn_steps": self.learn_steps,
            "vector_steps": self.vector_steps,
            "lanes": self.lanes,
            "entries": [
                {
                    "label": e.label,
                    "seconds": asdict(e.time),
                    "host": asdict(e.host_share),
                    "speed_up": asdict(e.speed_up(base)),
                    "samples_s": list(e.seconds),
                }
                for e in self.entries
            ],
            "skipped": dict(self.skipped),
        }


def bench_epochs(
    subject: BenchSubject,
    sets: Sequence[StageSet],
    device: Device,
    *,
    rounds: int,
    peers: Sequence[EpochCandidate] = (),
    skipped: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    processor: Callable[[], float] = time.process_time,
) -> EpochResult:
    """Time an epoch with each of `sets` on, and the `peers`, in turn, after one epoch of each.

    Raises:
        BenchError: no set and no peer, or no round.
        StageSetError: a set that the config can't have.
    """
    if not (sets or peers) or rounds < 1:
        raise BenchError(f"{len(sets)} sets of stages in {rounds} rounds measure nothing")
    candidates: list[EpochCandidate] = []
    try:
        candidates += [EpochRun(subject, stages, device) for stages in sets]
        timed = [*candidates, *peers]
        for candidate in timed:
            candidate.epoch()  # loads, plans, captures or compiles
        wall: list[list[float]] = [[] for _ in timed]
        host: list[list[float]] = [[] for _ in timed]
        for number in range(rounds):
            order = range(len(timed))
            for i in order if number % 2 == 0 else reversed(order):
                with no_collection():
                    before, used = clock(), processor()
                    timed[i].epoch()
                    # Before garbage is collected again: that is no part of the epoch.
                    spent, seconds = processor() - used, clock() - before
                wall[i].append(seconds)
                host[i].append(spent / seconds)
    finally:
        for candidate in candidates:
            candidate.close()
    entries = tuple(
        EpochEntry(c.label, tuple(times), tuple(shares))
        for c, times, shares in zip(timed, wall, host, strict=True)
    )
    config, taken = subject.config, rounds_of(subject)
    return EpochResult(
        subject.name,
        device_words(device),
        taken * config.loop.learns_per_collect,
        taken * config.loop.learn_every,
        config.env.lanes,
        entries,
        dict(skipped or {}),
    )
