"""What an expression may be, as far as the engine can tell without running it.

The engine follows names, not data: a value says which function is called, which class an object is
of, and whether something lives on a device. What it can't tell is `UNKNOWN`, and stays silent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from onegraph.guards.engine.project import Class, Function, Module

Place = Literal["device", "host", "unknown"]


@dataclass(frozen=True)
class Value:
    """Nothing is known."""


@dataclass(frozen=True)
class Host(Value):
    """Something in host memory whose use can't wait for a device: a number, a NumPy array."""


@dataclass(frozen=True)
class External(Value):
    """A module, function or class outside the project, by its dotted name."""

    dotted: str


@dataclass(frozen=True)
class Instance(Value):
    """An object of a class outside the project.

    Attributes:
        dotted: the class.
        origin: for a kernel or a module of kernels, the place where its module was loaded.
    """

    dotted: str
    origin: str = ""


@dataclass(frozen=True)
class Array(Value):
    """A tensor or device array.

    Attributes:
        framework: ``torch``, ``cupy``, ``jax``, …
        place: where it lives; a torch tensor made with no ``device=`` is on the host.
        boolean: it holds truth values, so that an index by it depends on data.
        pinned: host memory that is page-locked.
    """

    framework: str
    place: Place = "unknown"
    boolean: bool = False
    pinned: bool = False


@dataclass(frozen=True)
class ModuleRef(Value):
    """A module of the project."""

    module: Module


@dataclass(frozen=True)
class FunctionRef(Value):
    """A function of the project, bound to `receiver` if it is a method of an object.

    Attributes:
        bound: how many leading arguments `functools.partial` has given already.
        compiled: it was wrapped in a just-in-time compiler that traces it (``jax.jit``).
    """

    function: Function
    receiver: Value | None = None
    bound: int = 0
    compiled: bool = False


@dataclass(frozen=True)
class ClassRef(Value):
    """A class of the project."""

    cls: Class


@dataclass(frozen=True)
class Object(Value):
    """An object of a class of the project."""

    cls: Class


@dataclass(frozen=True)
class SuperRef(Value):
    """``super()`` in a method of `cls`."""

    cls: Class
    receiver: Value


@dataclass(frozen=True)
class Items(Value):
    """A collection whose elements are alike."""

    item: Value


@dataclass(frozen=True)
class Group(Value):
    """A tuple with known elements."""

    values: tuple[Value, ...]


UNKNOWN = Value()
HOST = Host()


def join(first: Value, second: Value) -> Value:
    """What is left to say of a name that may hold either value."""
    if first == second:
        return first
    if isinstance(first, (Array, Object)) and isinstance(second, Array):
        if isinstance(first, Object):
            return first
        place = first.place if first.place == second.place else "unknown"
        return replace(
            first,
            place=place,
            boolean=first.boolean and second.boolean,
            pinned=first.pinned and second.pinned,
        )
    if isinstance(first, Group) and isinstance(second, Group):
        if len(first.values) == len(second.values):
            return Group(tuple(map(join, first.values, second.values)))
        return UNKNOWN
    if isinstance(first, Items) and isinstance(second, Items):
        return Items(join(first.item, second.item))
    # A number or None that later becomes an array is taken for the array: `loss = 0.0` before a
    # loop. An unknown beside a known value is taken for the known one, as annotations are.
    for weak in (UNKNOWN, HOST):
        if first == weak:
            return second
        if second == weak:
            return first
    return first if isinstance(first, (Object, Array)) else UNKNOWN


def element(value: Value) -> Value:
    """What iterating over `value` gives."""
    match value:
        case Items(item):
            return item
        case Group(values) if values:
            found = values[0]
            for other in values[1:]:
                found = join(found, other)
            return found
        case Array() | Host():
            return value
    return UNKNOWN
