"""Interleaved times in pytest-benchmark's records.

pytest-benchmark times one test after the other, minutes apart: a machine that drifts would favour
one stage. So all candidates of a size are timed in one interleaved run (`onegraph.stages.bench`),
by pytest-benchmark's own timer, when the first test of the size asks for it. Each test then hands
the durations measured for its candidate to pytest-benchmark as its rounds, so that tables, JSON
and ``pytest-benchmark compare`` work as they do for any benchmark. It has no public call for that;
`record` uses what its fixture's own loop uses, and checks what was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import peers
import pytest

from onegraph.kernels.device import Device
from onegraph.stages.bench import BenchResult, Entry, bench
from onegraph.trainer.bench import BenchSubject, named_size, tensor_core_steps
from onegraph.trainer.cli.bench import cumulative_sets

ROUNDS = 10

#: The precisions of the peers by size. At S a step is launches and no arithmetic. At L it is matrix
#: products; `onegraph bench --size L --peers` has float32 too, which takes a minute longer.
PRECISIONS: dict[str, tuple[peers.Precision, ...]] = {
    "S": ("float32",),
    "M": ("float32", "tf32"),
    "L": ("tf32",),
    "FULL": ("float32", "tf32"),
}


def stage_labels() -> list[str]:
    """What `onegraph.stages.bench` calls the sets of stages."""
    from onegraph.stages.bench import set_label

    subject = BenchSubject(named_size("S"))
    return [set_label(subject, stages) for stages in cumulative_sets()]


def peer_labels(size: str) -> list[str]:
    """The peers of a size, whether or not this machine has them."""
    precisions = PRECISIONS.get(size, ())
    return list(peers.labels(BenchSubject(named_size(size)), precisions)) if precisions else []


@dataclass
class Measurements:
    """The interleaved runs of a session; each is shown when it is taken."""

    show: Callable[[BenchResult], None]
    _taken: dict[tuple[str, str], BenchResult] = field(default_factory=dict)
    _failed: dict[tuple[str, str], Exception] = field(default_factory=dict)

    def of(self, size: str, device: Device, benchmark) -> BenchResult:
        """The run of `size` on `device`."""
        key = size, device.kind
        if key in self._failed:  # once is enough: a run takes minutes
            raise self._failed[key]
        if key not in self._taken:
            try:
                self._taken[key] = self._take(size, device, benchmark._timer)
            except Exception as error:
                self._failed[key] = error
                raise
            self.show(self._taken[key])
        return self._taken[key]

    @staticmethod
    def _take(size: str, device: Device, clock) -> BenchResult:
        subject = BenchSubject(named_size(size))
        found, skipped = [], {}
        # Peers on the host would compare NumPy with their CPU code, which nobody asks.
        if device.kind == "cuda" and size in PRECISIONS:
            found, skipped = peers.candidates(subject, device.kind, PRECISIONS[size])
        if "tf32" in PRECISIONS.get(size, ()):
            found = [*tensor_core_steps(subject, device).values(), *found]
        try:
            return bench(
                subject,
                cumulative_sets(),
                device,
                rounds=ROUNDS,
                peers=found,
                skipped=skipped,
                clock=clock,
            )
        finally:
            for peer in found:
                peer.close()

    def results(self) -> Iterator[BenchResult]:
        """Every run so far."""
        yield from self._taken.values()


def record(benchmark, result: BenchResult, label: str) -> Entry:
    """Make the rounds measured for `label` the rounds of `benchmark`; skip an absent peer."""
    benchmark.group = f"{result.subject}, {result.device}"
    if label in result.skipped:
        pytest.skip(f"{label}: {result.skipped[label]}")
    entry = next(e for e in result.entries if e.label == label)
    speed_up = entry.speed_up(result.entries[0])
    benchmark.extra_info.update(
        device=result.device,
        size=result.subject,
        calls=dict(entry.calls),
        nodes=entry.nodes,
        speed_up=[speed_up.median, speed_up.low, speed_up.high],
    )
    benchmark._mode = "interleaved"
    stats = benchmark._make_stats(iterations=entry.steps)
    for us in entry.samples_us:
        stats.update(us * 1e-6 * entry.steps)  # the sample's seconds; it divides by its steps
    assert benchmark.stats.stats.data == pytest.approx([us * 1e-6 for us in entry.samples_us])
    return entry
