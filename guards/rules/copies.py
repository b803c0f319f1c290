"""Which way a copy goes, for the calls whose direction is an argument."""

from __future__ import annotations

import ast
from typing import Literal

from onegraph.guards.engine.flow import Event

Direction = Literal["dtoh", "htod", "dtod", "unknown"]

_KINDS: tuple[tuple[str, Direction], ...] = (
    ("DeviceToHost", "dtoh"),
    ("HostToDevice", "htod"),
    ("DeviceToDevice", "dtod"),
    ("HostToHost", "dtod"),
)


def is_copy(event: Event) -> bool:
    """A copy by its own call, and not as part of a conversion."""
    dotted = event.dotted
    last = dotted.rpartition(".")[2]
    if event.category not in ("dtoh", "htod", "dtod"):
        return False
    return "emcpy" in last or "MemoryPointer.copy_" in dotted or dotted.startswith("pycuda.driver")


def direction(event: Event) -> Direction:
    """The way it goes; ``unknown`` where an argument says so and can't be read."""
    last = event.dotted.rpartition(".")[2]
    if "DtoH" in last or "AtoH" in last or "dtoh" in last or "to_host" in last:
        return "dtoh"
    if "HtoD" in last or "HtoA" in last or "htod" in last or "from_host" in last:
        return "htod"
    if event.category == "dtod" and "memcpy" in last.lower() and "Async" not in last:
        return "dtod"
    for argument in event.call.args:
        text = ast.unparse(argument)
        for word, way in _KINDS:
            if word in text or f"memcpy{word}" in text:
                return way
    if event.dotted.startswith("pycuda.driver"):
        return "dtoh" if last == "from_device" else "htod" if last == "to_device" else "dtod"
    return "unknown" if event.category == "dtoh" else event.category  # type: ignore[return-value]
