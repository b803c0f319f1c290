"""How near a step is to what the device allows: its floors, the time it takes, and their ratio.

Three things bound a step from below, and the largest of them is its floor:

- ``bytes``: its least traffic (`least_work`) at the memory's peak bandwidth;
- ``arithmetic``: its matrix products at the device's peak for their precision;
- ``nodes``: its longest chain of nodes, each at the latency that a node has on this device.

The first two are of the work, which is the same at every set of stages; the third is of the form
that a set gives it. `docs/roofline.md` says how to read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onegraph.stages.bench import BenchResult, Entry
from onegraph.stages.least_work import Work
from onegraph.stages.peaks import Peaks

FORMAT = "onegraph-roofline-1"

#: The floors in the order in which they are shown.
FLOORS = ("bytes", "arithmetic", "nodes")


@dataclass(frozen=True)
class Row:
    """One set of stages.

    Attributes:
        entry: the time that it takes.
        work: what it has to do.
        chain: its nodes that wait for one another.
        floors_us: microseconds of the floors that are known, by name; none without peaks.
    """

    entry: Entry
    work: Work
    chain: int
    floors_us: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The name of the largest floor; empty if none is known."""
        return max(self.floors_us, key=lambda name: self.floors_us[name], default="")

    @property
    def floor_us(self) -> float | None:
        """The largest floor."""
        return self.floors_us[self.bound] if self.bound else None

    @property
    def share(self) -> float | None:
        """The floor over the median time: 1 would be at the floor."""
        return None if self.floor_us is None else self.floor_us / self.entry.time.median

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it: times in microseconds a step."""
        return {
            "label": self.entry.label,
            "bytes": self.work.traffic_bytes,
            "flops": dict(self.work.flops),
            "chain": self.chain,
            "floors_us": dict(self.floors_us),
            "floor_us": self.floor_us,
            "bound": self.bound,
            "us": asdict(self.entry.time),
            "share": self.share,
            "samples_us": list(self.entry.samples_us),
        }


@dataclass(frozen=True)
class Roofline:
    """The rows of one subject.

    Attributes:
        peaks: what the floors were taken from; ``None`` on a device that has none.
    """

    subject: str
    device: str
    rounds: int
    peaks: Peaks | None
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "format": FORMAT,
            "subject": self.subject,
            "device": self.device,
            "rounds": self.rounds,
            "peaks": None if self.peaks is None else self.peaks.to_json(),
            "rows": [row.to_json() for row in self.rows],
        }


def floors(work: Work, chain: int, peaks: Peaks) -> dict[str, float]:
    """Microseconds that a step takes at least, by what bounds it.

    Without ``arithmetic`` where a precision that the step multiplies in has no known peak.
    """
    found = {"bytes": work.traffic_bytes / peaks.bytes_per_s * 1e6}
    if work.flops.keys() <= peaks.flops_per_s.keys():
        seconds = sum(flops / peaks.flops_per_s[p] for p, flops in work.flops.items())
        found["arithmetic"] = seconds * 1e6
    return {**found, "nodes": chain * peaks.node_us.median}


def roofline(
    result: BenchResult, works: Sequence[Work], chains: Sequence[int], peaks: Peaks | None
) -> Roofline:
    """The entries of `result` beside their floors.

    Args:
        result: the times.
        works: of each entry, in order.
        chains: of each entry, in order.
        peaks: of the device that they were taken on.
    """
    rows = tuple(
        Row(entry, work, chain, {} if peaks is None else floors(work, chain, peaks))
        for entry, work, chain in zip(result.entries, works, chains, strict=True)
    )
    return Roofline(result.subject, result.device, result.rounds, peaks, rows)
