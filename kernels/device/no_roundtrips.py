"""The guards' run-time half: inside ``with no_roundtrips(device):`` a round trip raises.

The lint follows names and can lose the trail; this follows the calls. Both honour one comment,
``# guards: allow[GRD102] -- reason``, on the line of the source that asks for the call.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from onegraph.guards.runtime import allowed_at
from onegraph.kernels.device.base import Device
from onegraph.kernels.device.ledger import KINDS

#: What a graphed step does none of.
ROUND_TRIPS = frozenset(
    {
        "alloc",
        "capture",
        "dtoh",
        "free",
        "host",
        "htod",
        "instantiate",
        "memset_sync",
        "module_load",
        "sync",
    }
)

#: The lint's codes that allow a kind of call. A copy to the host counts as a wait too, so what
#: allows the copy allows the wait.
CODES: Mapping[str, frozenset[str]] = {
    "alloc": frozenset({"GRD401", "GRD403"}),
    "capture": frozenset({"GRD302"}),
    "dtoh": frozenset({"GRD102", "GRD201"}),
    "free": frozenset({"GRD402"}),
    "graph_launch": frozenset(),
    "host": frozenset({"GRD303"}),
    "htod": frozenset({"GRD202"}),
    "instantiate": frozenset({"GRD302"}),
    "launch": frozenset({"GRD301"}),
    "matmul": frozenset({"GRD301"}),
    "memset_sync": frozenset({"GRD101"}),
    "module_load": frozenset({"GRD502"}),
    "sync": frozenset({"GRD101", "GRD102", "GRD201"}),
}

_DEVICE_FOLDER = str(Path(__file__).parent)


class RoundTripError(RuntimeError):
    """A call that `no_roundtrips` forbids; it was not made.

    Attributes:
        kind: as the ledger counts it.
        op: label of the program's op; empty outside a program.
        phase: the program's phase; empty outside a step.
        file, line: the source that asked for the call, outside the device layer.
    """

    def __init__(self, kind: str, op: str, phase: str, file: str, line: int) -> None:
        what = f"{kind} ({op})" if op else kind
        where = f" in phase {phase}" if phase else ""
        codes = " or ".join(sorted(CODES.get(kind, frozenset()))) or "no code"
        super().__init__(
            f"{what}{where}, asked for at {file}:{line}, is a round trip inside no_roundtrips();"
            f" take it out of the step, or allow it there: # guards: allow[{codes}] -- why"
        )
        self.kind, self.op, self.phase, self.file, self.line = kind, op, phase, file, line


@contextmanager
def no_roundtrips(device: Device, *, forbid: Collection[str] = ROUND_TRIPS) -> Iterator[None]:
    """Have the ledger of `device` refuse the calls of the kinds in `forbid`, before they are made.

    Args:
        device: host or CUDA; both count in the same ledger.
        forbid: kinds of `onegraph.kernels.device.ledger.KINDS`; add ``launch`` and ``matmul`` for a
            step that is one graph launch.

    Raises:
        RoundTripError: from the call, inside the block.
        ValueError: `forbid` names what the ledger does not count.
    """
    if unknown := sorted(set(forbid) - set(KINDS)):
        raise ValueError(f"forbid: {unknown[0]!r} is none of the ledger's {', '.join(KINDS)}")
    ledger, before = device.ledger, device.ledger.watch
    forbidden = frozenset(forbid)

    def watch(kind: str) -> None:
        if kind in forbidden:
            codes = CODES.get(kind, frozenset())
            caller = _caller(sys._getframe(2))
            frame: FrameType | None = caller
            while frame is not None:
                if codes & allowed_at(frame.f_code.co_filename, frame.f_lineno):
                    break
                frame = frame.f_back
            else:
                raise RoundTripError(
                    kind, ledger.op, ledger.phase, caller.f_code.co_filename, caller.f_lineno
                )
        if before is not None:
            before(kind)

    ledger.watch = watch
    try:
        yield
    finally:
        ledger.watch = before


def _caller(frame: FrameType) -> FrameType:
    """The nearest frame outside the device layer."""
    while frame.f_back is not None and str(frame.f_code.co_filename).startswith(_DEVICE_FOLDER):
        frame = frame.f_back
    return frame
