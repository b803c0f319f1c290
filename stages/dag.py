"""A dag: ops with the edges that they need, and what it is that makes one op wait for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from onegraph.kernels.catalogue import find
from onegraph.kernels.device.base import BACKGROUND_LANES
from onegraph.stages.program import (
    Forked,
    Launch,
    Op,
    ProgramError,
    Ref,
    Work,
    conflict,
    graphable,
    work,
)


def starts_early(op: Op) -> bool:
    """Whether `op` starts before what stands before it has ended (programmatic launch)."""
    return isinstance(op, Launch) and find(op.kernel).early


def dependences(works: Sequence[Work]) -> list[list[int]]:
    """Of each op the places of those before it that it must stay behind.

    It must where one of the two touches what the other writes.
    """
    known: dict[str, list[tuple[int, Ref, bool]]] = {}
    found = []
    for i, op in enumerate(works):
        written = set(op.written)
        uses = [(r, r in written) for r in dict.fromkeys((*op.touched, *op.written))]
        places = {
            place
            for r, writes in uses
            for place, other, wrote in known.get(r.buffer, ())
            if (writes or wrote) and r.overlaps(other)
        }
        found.append(sorted(places))
        for r, writes in uses:
            known.setdefault(r.buffer, []).append((i, r, writes))
    return found


@dataclass(frozen=True)
class Dag(Forked):
    """Ops of which each waits for those that it depends on, and for no others.

    Each op has a lane. It waits for the op before it in its lane, and for ops of other lanes that
    it names; so in a graph it is a node with the edges that it needs, and ops of different lanes
    run side by side. `onegraph.stages.schedule.regrouped` makes one out of ops in a right order.

    Attributes:
        ops: in an order in which each stands behind what it waits for.
        lanes: of each op, counted from 0 on.
        after: of each op, the places of the ops of other lanes that it waits for.
        background: how many of the lanes, the last ones, have the device where the others leave it
            room.

    Raises:
        ProgramError: an op that is no launch, product, copy on the device or stream-ordered memset,
            or that starts before the one before it has ended; one with an op group of its own;
            lanes or places that do not fit the ops; or two ops that touch what one of them writes,
            of which neither waits for the other.
    """

    kind: ClassVar[str] = "dag"
    ops: tuple[Op, ...]
    lanes: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    background: int = 0

    def __post_init__(self) -> None:
        if not self.ops or not len(self.ops) == len(self.lanes) == len(self.after):
            raise ProgramError(
                f"a dag gives each of its ops a lane and what it waits for, got {len(self.ops)}"
                f" ops, {len(self.lanes)} lanes and {len(self.after)} lists of places"
            )
        if set(self.lanes) != set(range(self.width)):
            raise ProgramError(
                "the lanes of a dag count up from 0 and none is empty, got"
                f" {sorted(set(self.lanes))}"
            )
        if not 0 <= self.background <= min(BACKGROUND_LANES, self.width - 1):
            raise ProgramError(
                f"{self.background} of {self.width} lanes are in the background;"
                f" {BACKGROUND_LANES} may be, and not all"
            )
        for i, (op, places) in enumerate(zip(self.ops, self.after, strict=True)):
            if work(op) is None or not graphable(op):
                raise ProgramError(
                    f"{next(op.lines())} can't stand in a dag: that takes launches, matrix"
                    " products, copies on the device and memsets in stream order; put it before or"
                    " after"
                )
            if op.group:
                raise ProgramError(f"{op.label}: the group is that of the dag as a whole")
            if starts_early(op):
                raise ProgramError(
                    f"{op.label} starts before what stands before it in its stream has ended, so"
                    " it can't stand in a dag, where several may; put it before or after"
                )
            if wrong := [place for place in places if not 0 <= place < i]:
                raise ProgramError(
                    f"{op.label} stands at place {i} and waits for place {wrong[0]}; an op stands"
                    " behind what it waits for"
                )
        ancestors = self.ancestors()
        for i, needed in enumerate(dependences(self.works)):
            if loose := [place for place in needed if not ancestors[i] >> place & 1]:
                first, second = self.works[loose[0]], self.works[i]
                found = conflict([first], [second])
                what = f": {found[0].label} writes {found[2]}" if found else ""
                raise ProgramError(
                    f"{second.label} does not wait for {first.label}, which it has to{what}, and"
                    " the other touches it too"
                )

    @property
    def works(self) -> tuple[Work, ...]:
        """The ops."""
        return tuple(w for op in self.ops if (w := work(op)) is not None)

    @property
    def members(self) -> tuple[Op, ...]:
        """The ops in their order."""
        return self.ops

    @property
    def width(self) -> int:
        """How many lanes there are."""
        return max(self.lanes) + 1

    def waits(self) -> tuple[tuple[int, ...], ...]:
        """Of each op the places of all that it waits for: in its lane, and in others."""
        last: dict[int, int] = {}
        found = []
        for i, (lane, places) in enumerate(zip(self.lanes, self.after, strict=True)):
            before = (last[lane],) if lane in last else ()
            found.append((*before, *places))
            last[lane] = i
        return tuple(found)

    def ancestors(self) -> list[int]:
        """Of each op those that have ended when it starts, as bits by their places."""
        found: list[int] = []
        for places in self.waits():
            bits = 0
            for place in places:
                bits |= found[place] | 1 << place
            found.append(bits)
        return found

    @property
    def critical_path(self) -> int:
        """Ops of the longest path: how many have to run one after another."""
        longest: list[int] = []
        for places in self.waits():
            longest.append(1 + max((longest[place] for place in places), default=0))
        return max(longest)

    def map_ops(self, change: Callable[[Op], Op]) -> Dag:
        """The dag with `change` applied to each op."""
        return replace(self, ops=tuple(map(change, self.ops)))

    @property
    def label(self) -> str:
        return f"dag of {len(self.ops)} ops in {self.width} lanes"

    def lines(self) -> Iterator[str]:
        yield f"{self.label}, {self.critical_path} one after another {{"
        for i, (op, lane, places) in enumerate(zip(self.ops, self.lanes, self.after, strict=True)):
            first, *rest = op.lines()
            waits = f" after {', '.join(map(str, places))}" if places else ""
            where = "background lane" if lane >= self.width - self.background else "lane"
            yield f"  {i} in {where} {lane}{waits}: {first}"
            yield from ("  " + line for line in rest)
        yield "}"
