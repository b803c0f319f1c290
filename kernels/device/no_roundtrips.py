"""The guards' run-time half: inside ``with no_roundtrips(device):`` a round trip raises.

The lint follows names and can lose the trail; this follows the calls. Both honour one comment,
``# guards: allow[GRD102] -- reason``, on the line of the source that asks for the call.

The ledger refuses what is asked of `Device`, before it is made. On a GPU CUPTI watches as well: it
sees what goes past `Device`, through another library or the bindings themselves. It can't refuse a
call, so that one is made, and raises when the block ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from onegraph.guards.runtime import allowed_at
from onegraph.kernels.device.base import Device
from onegraph.kernels.device.cupti_counts import (
    CALL_CLASSES,
    CuptiCounter,
    CuptiUnavailableError,
    call_class,
)
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

#: What calls that the ledger has no kind for are, for whoever forbids them: a copy whose direction
#: the driver's name does not give may be either.
_UNLEDGERED = {"host functions": ("host",), "other copies": ("dtoh", "htod")}

_DEVICE_FOLDER = str(Path(__file__).parent)


class RoundTripError(RuntimeError):
    """A call that `no_roundtrips` forbids.

    Attributes:
        kind: as the ledger counts it.
        op: label of the program's op; empty outside a program.
        phase: the program's phase; empty outside a step.
        file, line: the source that asked for the call, outside the device layer.
        driver_call: the driver's name of a call that went past the ledger, which was made; empty
            for one that the ledger refused, which was not.
    """

    def __init__(
        self, kind: str, op: str, phase: str, file: str, line: int, driver_call: str = ""
    ) -> None:
        what = driver_call or kind
        what = f"{what} ({op})" if op else what
        where = f" in phase {phase}" if phase else ""
        past = " and made past the device's ledger" if driver_call else ""
        codes = " or ".join(sorted(CODES.get(kind, frozenset()))) or "no code"
        super().__init__(
            f"{what}{where}, asked for at {file}:{line}{past}, is a round trip inside"
            f" no_roundtrips(); take it out of the step, or allow it there:"
            f" # guards: allow[{codes}] -- why"
        )
        self.kind, self.op, self.phase, self.file, self.line = kind, op, phase, file, line
        self.driver_call = driver_call


@dataclass
class Watch:
    """What a block of `no_roundtrips` is watched by.

    Attributes:
        cupti: "CUPTI: watching", or why it is not; the ledger always does.
        past_ledger: the first forbidden call that only CUPTI saw, raised when the block ends.
    """

    cupti: str
    past_ledger: Exception | None = field(default=None, repr=False)


@contextmanager
def no_roundtrips(
    device: Device, *, forbid: Collection[str] = ROUND_TRIPS, cupti: bool | None = None
) -> Iterator[Watch]:
    """Have the ledger of `device` refuse the calls of the kinds in `forbid`, before they are made.

    Args:
        device: host or CUDA; both count in the same ledger.
        forbid: kinds of `onegraph.kernels.device.ledger.KINDS`; add ``launch`` and ``matmul`` for a
            step that is one graph launch.
        cupti: whether CUPTI watches the driver calls of this thread too. None: where it is
            present; `Watch.cupti` says whether it is. It costs a call into Python for each driver
            call, and other profilers can't run meanwhile.

    Raises:
        RoundTripError: from the call, inside the block; at the block's end for a call that went
            past the ledger.
        CuptiUnavailableError: `cupti` is true and CUPTI can't watch here.
        ValueError: `forbid` names what the ledger does not count.
    """
    if unknown := sorted(set(forbid) - set(KINDS)):
        raise ValueError(f"forbid: {unknown[0]!r} is none of the ledger's {', '.join(KINDS)}")
    ledger, before = device.ledger, device.ledger.watch
    forbidden = frozenset(forbid)

    def watch(kind: str) -> None:
        if kind in forbidden and (error := _refusal(device, kind, sys._getframe(2))) is not None:
            raise error
        if before is not None:
            before(kind)

    with _driver_watch(device, forbidden, cupti) as watching:
        ledger.watch = watch
        try:
            yield watching
        finally:
            ledger.watch = before
    if watching.past_ledger is not None:
        raise watching.past_ledger


@contextmanager
def _driver_watch(
    device: Device, forbidden: frozenset[str], wanted: bool | None
) -> Iterator[Watch]:
    """CUPTI, noting in what it yields the first forbidden call that this thread makes."""
    if wanted is False or device.kind != "cuda":
        if wanted:
            raise CuptiUnavailableError(f"CUPTI: the {device.kind} device makes no driver calls")
        yield Watch("CUPTI: not asked" if wanted is False else "CUPTI: no driver on this device")
        return
    thread, watching = threading.get_ident(), Watch("CUPTI: watching")
    kinds = _forbidden_classes(forbidden)

    def called(name: str) -> None:
        if watching.past_ledger is not None or threading.get_ident() != thread:
            return
        if (kind := kinds.get(call_class(name))) is None:
            return
        try:
            watching.past_ledger = _refusal(device, kind, sys._getframe(1), name)
        except Exception as error:  # noqa: BLE001  CUPTI can't carry it: the block's end raises it
            watching.past_ledger = error

    try:
        counter = CuptiCounter(called)
    except CuptiUnavailableError as error:
        if wanted:
            raise
        yield Watch(str(error))
        return
    try:
        yield watching
    finally:
        counter.close()


def _forbidden_classes(forbidden: frozenset[str]) -> dict[str, str]:
    """The classes of driver calls that are forbidden whichever of their kinds was meant."""
    return {
        group.name: kinds[0]
        for group in CALL_CLASSES
        if (kinds := group.kinds or _UNLEDGERED[group.name]) and forbidden.issuperset(kinds)
    }


def _refusal(
    device: Device, kind: str, asked: FrameType, driver_call: str = ""
) -> RoundTripError | None:
    """The error for a call that was asked for in `asked`; None where a comment allows it."""
    codes, caller = CODES.get(kind, frozenset()), _caller(asked)
    frame: FrameType | None = caller
    while frame is not None:
        if codes & allowed_at(frame.f_code.co_filename, frame.f_lineno):
            return None
        frame = frame.f_back
    file, line = caller.f_code.co_filename, caller.f_lineno
    return RoundTripError(kind, device.ledger.op, device.ledger.phase, file, line, driver_call)


def _caller(frame: FrameType) -> FrameType:
    """The nearest frame outside the device layer."""
    while frame.f_back is not None and str(frame.f_code.co_filename).startswith(_DEVICE_FOLDER):
        frame = frame.f_back
    return frame
