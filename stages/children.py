"""The children of a parent graph: which wait for which, and whether that is enough.

A phase, and the child that it becomes, waits for the one before it, or for those that it names.
What may run at once must not touch what one of them writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onegraph.stages.program import (
    GraphLaunch,
    Op,
    Phase,
    ProgramError,
    Work,
    conflict,
    opened,
    work,
)


def children_of(body: Sequence[Op]) -> list[GraphLaunch]:
    """The children in a parent's body, in their order."""
    return [op for op in body if isinstance(op, GraphLaunch)]


def waits_of_phases(
    phases: Sequence[Phase], exists: Callable[[Phase], bool]
) -> dict[str, set[str]]:
    """Of each phase those that it waits for; one that does not exist is stood in for by its own.

    Args:
        phases: in their order.
        exists: whether there is anything to wait for.
    """
    found: dict[str, set[str]] = {}
    stands_for: dict[str, set[str]] = {}
    previous: str | None = None
    for phase in phases:
        names = phase.after
        if names is None:
            names = () if previous is None else (previous,)
        found[phase.name] = set().union(*(stands_for[name] for name in names))
        stands_for[phase.name] = {phase.name} if exists(phase) else found[phase.name]
        previous = phase.name
    return found


def waits_of_children(children: Sequence[GraphLaunch]) -> dict[str, set[str]]:
    """Of each child those that it waits for.

    Raises:
        ProgramError: it names one that does not stand before it.
    """
    found: dict[str, set[str]] = {}
    previous: str | None = None
    for child in children:
        names = child.after
        if names is None:
            names = () if previous is None else (previous,)
        if unknown := [name for name in names if name not in found]:
            raise ProgramError(
                f"graph {child.name!r} waits for {unknown[0]!r}, and no child of that name stands"
                " before it"
            )
        found[child.name] = set(names)
        previous = child.name
    return found


def with_waits(body: Sequence[Op], waits: Mapping[str, set[str]]) -> tuple[Op, ...]:
    """A parent's `body` whose children wait for those in `waits`.

    Raises:
        ProgramError: two children may run at once, of which one writes what the other touches.
    """
    order = [child.name for child in children_of(body)]
    direct = _direct(order, waits)
    _require_apart(children_of(body), direct)

    def told(op: Op) -> Op:
        if not isinstance(op, GraphLaunch):
            return op
        before = order[: order.index(op.name)][-1:]
        names = tuple(name for name in order if name in direct[op.name])
        return replace(op, after=None if list(names) == before else names)

    return tuple(map(told, body))


def places(children: Sequence[GraphLaunch]) -> list[tuple[int, ...]] | None:
    """Of each child the places of those that it waits for; ``None`` where all stand in a row."""
    if all(child.after is None for child in children):
        return None
    order = {child.name: i for i, child in enumerate(children)}
    waits = waits_of_children(children)
    return [tuple(sorted(order[name] for name in waits[child.name])) for child in children]


def _direct(order: Sequence[str], waits: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """`waits` without what follows from the rest of them."""
    above: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    for name in order:
        further = set().union(*(above[other] for other in waits[name]))
        found[name] = waits[name] - further
        above[name] = waits[name] | further
    return found


def _require_apart(children: Sequence[GraphLaunch], waits: Mapping[str, set[str]]) -> None:
    above: dict[str, set[str]] = {}
    works: dict[str, list[Work]] = {}
    for child in children:
        mine = works[child.name] = [w for op in opened(child.body) if (w := work(op)) is not None]
        above[child.name] = waits[child.name].union(*(above[n] for n in waits[child.name]))
        for other, theirs in works.items():
            if other == child.name or other in above[child.name]:
                continue
            if found := conflict(theirs, mine):
                first, second, written = found
                raise ProgramError(
                    f"{child.name} does not wait for {other}, and may run beside it: but"
                    f" {first.label} writes {written}, which {second.label} touches; let it wait"
                )
