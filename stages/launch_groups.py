"""Launches that stand ready together, by kernel, as one launch each.

A scheduler that orders ops by what they read and write comes to sets of ops of which none waits for
another. Where several of a set launch one kernel, one node does them all
(`onegraph.kernels.launch_group`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from onegraph.kernels.catalogue import find
from onegraph.kernels.device.base import Module
from onegraph.kernels.launch_group import most_members
from onegraph.stages.program import Launch, LaunchGroup, Op, ProgramError, conflict, work

#: What launches have in common that one launch can do: kernel, module, op group.
_Key = tuple[str, Module, str]


def grouped(ops: Sequence[Op]) -> tuple[Op, ...]:
    """`ops`, with the launches of one kernel in `LaunchGroup` ops.

    A group stands where the first of its members stood, and has them in their order; the rest stay
    in their places. More launches than one group can have are dealt among groups of equal size, or
    nearly. Groups that are among `ops` already are opened and formed anew.

    Args:
        ops: of which none depends on another: they would be right in any order.

    Raises:
        ProgramError: two of them depend on each other, or one is of a kind of which it is not known
            what it touches.
    """
    _require_independent(ops)
    single = [member for op in ops for member in _launches(op)]
    alike: dict[_Key, list[int]] = {}
    for at, op in enumerate(single):
        if (key := _key(op)) is not None:
            alike.setdefault(key, []).append(at)
    parts = {part[0]: part for key, places in alike.items() for part in _dealt(places, key)}
    grouped_away = {at for part in parts.values() for at in part[1:]}
    return tuple(
        _together([single[i] for i in parts[at]]) if at in parts else op
        for at, op in enumerate(single)
        if at not in grouped_away
    )


def _require_independent(ops: Sequence[Op]) -> None:
    works = []
    for op in ops:
        if (found := work(op)) is None:
            raise ProgramError(f"{op.label} can't be grouped with others: what it does is unknown")
        works.append(found)
    for one, other in combinations(works, 2):
        if clash := conflict([one], [other]):
            first, second, written = clash
            raise ProgramError(
                f"{first.label} and {second.label} are not independent: the first writes {written},"
                " which the second touches too"
            )


def _launches(op: Op) -> Iterator[Op]:
    """`op`, or the launches that a group does, as they would stand alone."""
    if isinstance(op, LaunchGroup):
        yield from (replace(m, module=op.module, group=op.group) for m in op.members)
    else:
        yield op


def _key(op: Op) -> _Key | None:
    """What `op` has in common with those it can be grouped with; ``None`` if it stays alone."""
    if not isinstance(op, Launch) or most_members(find(op.kernel)) < 2:
        return None
    return op.kernel, op.module, op.group


def _dealt(places: Sequence[int], key: _Key) -> list[Sequence[int]]:
    """`places` in the fewest lists that groups have room for, of equal length or nearly."""
    parts = -(-len(places) // most_members(find(key[0])))
    edges = [len(places) * i // parts for i in range(parts + 1)]
    return [places[begin:end] for begin, end in pairwise(edges)]


def _together(ops: Sequence[Op]) -> Op:
    """Launches of one kernel as a group; one alone as it is."""
    if len(ops) == 1:
        return ops[0]
    members = [op for op in ops if isinstance(op, Launch)]
    first = members[0]
    plain = tuple(replace(m, module="shared", group="") for m in members)
    return LaunchGroup(plain, first.module, group=first.group)
