"""What several rules ask of an event."""

from __future__ import annotations

import ast

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import UNKNOWN, Array, Object, Value
from onegraph.guards.findings import Confidence


def on_device(value: Value) -> Array | None:
    """`value` as an array that may live on a device."""
    return value if isinstance(value, Array) and value.place != "host" else None


def sureness(array: Array) -> Confidence:
    """How sure it is that using `array` waits: proven if it is known to be on the device."""
    return "proven" if array.place == "device" else "likely"


def unknown_receiver(event: Event) -> bool:
    """A method of something that could not be told."""
    return (
        isinstance(event.call.func, ast.Attribute)
        and not event.dotted
        and (event.receiver == UNKNOWN or isinstance(event.receiver, Object))
    )


def shown(node: ast.expr) -> str:
    """The expression in a message, cut short."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


def no_arguments(event: Event) -> bool:
    """Called with nothing."""
    return not event.call.args and not event.call.keywords
