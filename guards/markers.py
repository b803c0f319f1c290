"""The two markers that tell the guards, and the reader, which code runs once a training step.

Both return the very function that they are given, so a marked function costs nothing more to call:

- ``@hot_path`` marks a function that runs every step. It, and whatever it calls, must not wait for
  the device, read from it, allocate on it, or launch outside a graph.
- ``@cold_path("reason")`` marks a function that hot code may reach and that is still not bound by
  this, such as a summary once an epoch. It stops the spread; the reason is for the reviewer.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

HOT_PATH_ATTRIBUTE = "__onegraph_hot_path__"
COLD_PATH_ATTRIBUTE = "__onegraph_cold_path__"


def hot_path(function: F, /) -> F:
    """Mark a function that runs every training step.

    Used bare. Above ``@staticmethod`` or ``@classmethod`` or below them, both work.

    Returns:
        ``function`` itself, with the attribute ``__onegraph_hot_path__`` set to True.

    Raises:
        TypeError: if it was called with anything but a function, as in ``@hot_path()``.
    """
    _require_function(function, "@hot_path", "write @hot_path bare, with no arguments")
    _mark(function, HOT_PATH_ATTRIBUTE, value=True)
    return function


def cold_path(reason: str, /) -> Callable[[F], F]:
    """Mark a function that hot code may call without making it hot.

    Args:
        reason: why a round trip is acceptable here, such as ``"once an epoch, after its sync"``.

    Returns:
        A decorator that returns its function itself, with the attribute
        ``__onegraph_cold_path__`` set to the reason.

    Raises:
        TypeError: if the reason is missing, blank or not a string, or the decorated object is not a
            function.
    """
    given: object = reason  # nothing has checked the annotation yet
    if not isinstance(given, str) or not given.strip():
        message = (
            f"@cold_path needs a reason, a non-empty string, but got {_name(given)}; "
            'write @cold_path("why a round trip is acceptable here")'
        )
        raise TypeError(message)

    def mark(function: F, /) -> F:
        _require_function(function, "@cold_path", "it decorates functions and methods")
        _mark(function, COLD_PATH_ATTRIBUTE, value=reason)
        return function

    return mark


def _require_function(function: object, marker: str, remedy: str) -> None:
    if isinstance(function, type) or not (
        callable(function) or isinstance(function, (staticmethod, classmethod))
    ):
        message = f"{marker} marks a function, not {_name(function)}; {remedy}"
        raise TypeError(message)


def _mark(function: object, attribute: str, *, value: object) -> None:
    other = COLD_PATH_ATTRIBUTE if attribute == HOT_PATH_ATTRIBUTE else HOT_PATH_ATTRIBUTE
    if hasattr(function, other):
        message = f"{_name(function)} is marked both @hot_path and @cold_path; keep one of them"
        raise TypeError(message)
    setattr(function, attribute, value)


def _name(thing: object) -> str:
    return getattr(thing, "__qualname__", None) or repr(thing)
