"""What a device does at most: bytes and multiply-adds a second, and the time of a node in a row.

Bandwidth and arithmetic follow from the driver's attributes (`onegraph.kernels.device.facts`), and
the bandwidth is measured where it tells none. The latency of a node is always measured, because
nobody publishes it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onegraph.kernels.device.base import Device
from onegraph.kernels.device.facts import DeviceFacts
from onegraph.kernels.learner.matmul import Precision
from onegraph.stages.bench import Clock, Spread, interleave, least_sample, spread

#: Nodes of the two graphs whose times give the latency of one: what a launch costs besides is in
#: both, and falls out of the difference.
LENGTHS = (64, 320)

#: Bytes that are copied to measure the memory: several times what any cache holds.
COPIED_BYTES = 1 << 30

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "tf32x3")


@dataclass(frozen=True)
class Peaks:
    """What a device does at most.

    Attributes:
        bytes_per_s: of its memory, read and written.
        measured_bandwidth: whether that is what a copy came to, and no attribute.
        flops_per_s: of matrix products by precision; without those for which no peak is known.
        node_us: microseconds from the begin of a node to that of the next, which waits for it.
        l2_bytes: size of the cache before the memory.
    """

    bytes_per_s: float
    measured_bandwidth: bool
    flops_per_s: Mapping[Precision, float]
    node_us: Spread
    l2_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return asdict(self)

    def words(self) -> str:
        """One line for people."""
        how = "as a copy comes to" if self.measured_bandwidth else "peak"
        flops = [f"{p} {rate / 1e12:,.1f} TFLOP/s" for p, rate in self.flops_per_s.items()]
        return (
            f"memory {self.bytes_per_s / 1e9:,.0f} GB/s {how}; products"
            f" {', '.join(flops) or 'of no known peak'}; a node in a row {self.node_us.median:.3f}"
            f" us ({self.node_us.low:.3f}-{self.node_us.high:.3f}, measured)"
        )


def measured_peaks(device: Device, *, rounds: int = 20) -> Peaks | None:
    """The device's peaks, its node latency measured now; ``None`` where no peaks are known."""
    facts = device.facts()
    if facts is None:
        return None
    known = facts.memory_bytes_per_s
    return Peaks(
        known or copied_bytes_per_s(device, rounds=rounds),
        not known,
        peak_flops(facts),
        node_latency(device, rounds=rounds),
        facts.l2_bytes,
    )


def peak_flops(facts: DeviceFacts) -> dict[Precision, float]:
    """Peaks by precision, those that are known."""
    found = {p: facts.flops_per_s(p) for p in PRECISIONS}
    return {p: rate for p, rate in found.items() if rate}


class _Repeated:
    """Work of a device as a candidate of the interleaved sampler."""

    quantum = 1

    def __init__(self, label: str, device: Device, once: Callable[[], None]) -> None:
        self.label, self._device, self._once = label, device, once

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._once()

    def wait(self) -> None:
        self._device.synchronize()

    def calls(self) -> Mapping[str, int]:
        return Counter()

    def nodes(self) -> int:
        return 0


def node_latency(
    device: Device,
    *,
    rounds: int = 20,
    min_sample_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> Spread:
    """Microseconds of a node in a row of a graph: kernels of one element, each after the other.

    The slope between two lengths of the row, round by round, and its spread over the rounds.
    """
    least = least_sample(device) if min_sample_s is None else min_sample_s
    with ExitStack() as stack:
        x = device.upload(np.ones(1, np.float32), "node_latency")
        stack.callback(device.free, x)
        work = device.prepare(
            "relu_epilogue", {"extra": x, "out": x, "n": 1, "grad": 0}, module="graphed"
        )
        candidates = []
        for length in LENGTHS:
            with device.capture(f"{length} nodes") as graph:
                for _ in range(length):
                    device.launch(work)
            stack.callback(graph.close)
            launch = _launcher(device, device.instantiate(graph))
            candidates.append(_Repeated(f"{length} nodes", device, launch))
        short, long = interleave(candidates, rounds=rounds, min_sample_s=least, clock=clock)
        device.synchronize()
    more = LENGTHS[1] - LENGTHS[0]
    pairs = zip(short.samples_us, long.samples_us, strict=True)
    return spread([(b - a) / more for a, b in pairs])


def _launcher(device: Device, executable: Any) -> Callable[[], None]:
    return lambda: device.graph_launch(executable)


def copied_bytes_per_s(
    device: Device,
    *,
    nbytes: int = COPIED_BYTES,
    rounds: int = 20,
    min_sample_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> float:
    """Bytes a second, read and written, of the median copy of `nbytes` on the device.

    Of fewer where a quarter of its free memory is less.
    """
    nbytes = max(1, min(nbytes, device.memory_free() // 4))
    least = least_sample(device) if min_sample_s is None else min_sample_s
    with ExitStack() as stack:
        arrays = []
        for name in ("copy_from", "copy_to"):
            array = device.allocate((nbytes,), "u8", name)
            stack.callback(device.free, array)
            device.memset(array)
            arrays.append(array)
        source, target = arrays
        copy = _Repeated("copy", device, lambda: device.copy_dtod(target, source))
        (entry,) = interleave([copy], rounds=rounds, min_sample_s=least, clock=clock)
    return 2e6 * nbytes / entry.time.median
