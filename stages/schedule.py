"""Ops in a right order, regrouped by what each depends on.

Phases are an order that people can follow, and more of an order than the numbers need: a pass over
one state does not wait for a pass over another. `regrouped` takes the ops of some phases, finds
what each of them touches, and makes a `Dag` of them: products that are ready together share a
launch where that pays, launches of one kernel do if asked to, and each op has the edges that it
needs and few others.

The lanes are dealt by list scheduling (Graham 1969, "Bounds on multiprocessing timing anomalies"):
of the ops that are ready, the one with the longest way to the end comes first, and goes where it
can start soonest. Large ops that the longest way does not lead through go to lanes in the
background. What an op costs is a rough figure, and decides on nothing but speed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

from onegraph.kernels.device.base import BACKGROUND_LANES
from onegraph.kernels.learner.gemm_group import MEMBERS, groups
from onegraph.stages.dag import Dag, dependences
from onegraph.stages.launch_groups import grouped as launch_groups
from onegraph.stages.program import (
    LaunchGroup,
    MatmulGroup,
    MatmulOp,
    Op,
    ProgramError,
    Work,
    opened,
    work,
)

#: Lanes that a dag has at most. Each with large products has a workspace of its own on a GPU.
LANES = 8

#: Cost, in nodes, from which an op goes to the background where the way to the end leaves it time:
#: it fills the GPU, and would keep what everything waits for from starting.
LARGE = 4.0

#: Cost from which it does though it has none, and the ops that then have to run beside it: they
#: leave most of a GPU idle, so that it loses little by giving way.
HUGE, BESIDE = 16.0, 16

#: Multiply-adds that cost as much as a node by itself: about a microsecond of a large GPU.
PER_NODE = 1 << 25

#: Levels that a product with a long sum waits for others with which it shares a launch: they are
#: gradients of weights, for which little else waits.
PATIENCE = 4

Shares = Callable[[MatmulOp], bool]


def fits_a_group(op: MatmulOp) -> bool:
    """Whether a device takes the product together with others like it, in one launch."""
    return op.spec.is_long or groups([(op.m, op.n, op.k)] * 2, op.precision)


def regrouped(
    ops: Sequence[Op],
    *,
    shares: Shares = fits_a_group,
    launches: bool = False,
    lanes: int = LANES,
) -> Dag:
    """The work of `ops` as a dag.

    Args:
        ops: launches, products, copies on the device and memsets in an order that is right; what
            is forked or grouped among them is taken apart first.
        shares: whether a product gains from a launch with others; one that no group takes has a
            launch of its own whatever it says.
        launches: whether launches of one kernel that are ready together are one, too.
        lanes: how many there are at most.

    Raises:
        ProgramError: no op, one of another kind or one that a dag can't hold, or no lane.
    """
    if lanes < 1:
        raise ProgramError(f"a schedule needs a lane, got {lanes}; give 1 or more")
    grouped = _grouped(_apart(ops), shares, launches)
    before = _direct(dependences(grouped))
    order, lane_of, background = _scheduled(grouped, before, lanes)
    place = {old: new for new, old in enumerate(order)}
    waits = _across(
        [sorted(place[i] for i in before[old]) for old in order], [lane_of[old] for old in order]
    )
    return Dag(
        tuple(replace(grouped[old], group="") for old in order),
        tuple(lane_of[old] for old in order),
        waits,
        background,
    )


def _apart(ops: Sequence[Op]) -> list[Work]:
    """Single pieces of work: forks opened, groups of products dissolved."""
    found: list[Work] = []
    for op in opened(ops):
        if isinstance(op, MatmulGroup | LaunchGroup):
            found += [replace(member, module=op.module) for member in op.members]
        elif (piece := work(op)) is not None:
            found.append(piece)
        else:
            raise ProgramError(
                f"{op.label} can't be regrouped: what it touches is unknown; leave its phase out"
            )
    return found


def _levels(before: Sequence[Sequence[int]]) -> list[int]:
    """Of each op how many have to run before it, one after another."""
    levels: list[int] = []
    for places in before:
        levels.append(max((levels[i] + 1 for i in places), default=0))
    return levels


def _is_long(op: Work) -> TypeGuard[MatmulOp]:
    return isinstance(op, MatmulOp) and op.spec.is_long


def _with_others(
    works: Sequence[Work], before: Sequence[Sequence[int]], shares: Shares
) -> list[int]:
    """The level of each op, but that of a product with a long sum may be a later one.

    It is up to `PATIENCE` levels later where another one stands with which it can share a launch,
    and nothing waits for it before.
    """
    levels = _levels(before)
    until = [max(levels, default=0)] * len(works)
    for i, places in enumerate(before):
        for j in places:
            until[j] = min(until[j], levels[i] - 1)
    found = list(levels)
    left = [i for i, op in enumerate(works) if _is_long(op) and shares(op)]
    while left:
        first = min(left, key=lambda i: (levels[i], i))
        last = min(until[first], levels[first] + PATIENCE)
        together = [i for i in left if levels[i] <= last]
        while (level := max(levels[i] for i in together)) > min(until[i] for i in together):
            together = [i for i in together if levels[i] < level]
        for i in together:
            found[i] = level
        left = [i for i in left if i not in together]
    return found


def _grouped(works: Sequence[Work], shares: Shares, launches: bool) -> list[Work]:
    """The ops by level, with products of a level that share a launch in groups.

    Of one level none waits for another, not even through others, so that no group can wait for
    itself.
    """
    levels: dict[int, list[Work]] = {}
    before = dependences(works)
    for op, number in zip(works, _with_others(works, before, shares), strict=True):
        levels.setdefault(number, []).append(op)
    found: list[Work] = []
    for _, level in sorted(levels.items()):
        small: dict[tuple[str, bool], list[MatmulOp]] = {}
        rest: list[Work] = []
        for op in level:
            if isinstance(op, MatmulOp) and fits_a_group(op) and shares(op):
                small.setdefault((op.module, op.spec.is_long), []).append(op)
            else:
                rest.append(op)
        found += [op for op in map(work, launch_groups(rest)) if op] if launches else rest
        for products in small.values():
            for members in _shared_launches(products):
                if len(members) == 1:
                    found += members
                    continue
                inside = tuple(replace(m, module="shared", group="") for m in members)
                found.append(MatmulGroup(inside, module=members[0].module))
    return found


def _shared_launches(products: Sequence[MatmulOp]) -> list[list[MatmulOp]]:
    """Products of a level by launch: the same layer of several passes first, then what is left.

    So passes that go through the same layers stay in step, and do not wait for what is no part of
    any of them. Longer sums stand first, and of long ones the larger products: a GPU starts the
    blocks of a launch in this order.
    """
    layers: dict[tuple[int, int], list[MatmulOp]] = {}
    for op in products:
        layers.setdefault((op.n, op.k), []).append(op)
    whole, left = list[list[MatmulOp]](), list[MatmulOp]()
    for same in layers.values():
        end = len(same) - len(same) % MEMBERS
        whole += [same[at : at + MEMBERS] for at in range(0, end, MEMBERS)]
        left += same[end:]
    left.sort(key=lambda op: (-op.k, -op.m * op.n if op.spec.is_long else 0))
    return whole + [left[at : at + MEMBERS] for at in range(0, len(left), MEMBERS)]


def _direct(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """`before` without what follows from the rest of it."""
    ancestors: list[int] = []
    found = []
    for places in before:
        above, kept = 0, list[int]()
        for i in sorted(places, reverse=True):
            if not above >> i & 1:
                kept.append(i)
            above |= ancestors[i] | 1 << i
        ancestors.append(above)
        found.append(sorted(kept))
    return found


def _cost(op: Work) -> float:
    members = op.members if isinstance(op, MatmulGroup) else (op,)
    return 1 + sum(m.m * m.n * m.k for m in members if isinstance(m, MatmulOp)) / PER_NODE


def _scheduled(
    works: Sequence[Work], before: Sequence[Sequence[int]], lanes: int
) -> tuple[list[int], list[int], int]:
    """The ops in the order of their starts, the lane of each, and how many lanes are behind.

    Large ops that have time are dealt to lanes of their own, the last ones.
    """
    cost = list(map(_cost, works))
    after: list[list[int]] = [[] for _ in works]
    for i, places in enumerate(before):
        for j in places:
            after[j].append(i)
    to_end = [0.0] * len(works)
    for i in reversed(range(len(works))):
        to_end[i] = cost[i] + max((to_end[j] for j in after[i]), default=0.0)
    ancestors = _all_before(before)
    behind = _giving_way(cost, before, to_end, ancestors) if lanes > BACKGROUND_LANES else set()
    ahead = lanes - BACKGROUND_LANES if behind else lanes
    missing = [len(places) for places in before]
    #: Ops whose waits are over or under way: the longest way to the end first.
    ready = [(-to_end[i], i) for i, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order, lane_of, ends = list[int](), [0] * len(works), [0.0] * len(works)
    free, tails = [0.0] * lanes, list[int | None]([None] * lanes)
    used = {False: 0, True: 0}

    def rank(lane: int, i: int, earliest: float) -> tuple[float, int, int]:
        """How well `lane` suits op `i`: the start, then how little it adds to what `i` awaits."""
        tail = tails[lane]
        if tail is None:
            fit = 2
        elif tail in before[i]:
            fit = 0
        else:
            fit = 1 if ancestors[i] >> tail & 1 else 3
        return max(free[lane], earliest), fit, lane

    while ready:
        _, i = heapq.heappop(ready)
        waits = i in behind
        first, count = (ahead, BACKGROUND_LANES) if waits else (0, ahead)
        open_lanes = range(first, first + min(used[waits] + 1, count))
        earliest = max((ends[j] for j in before[i]), default=0.0)
        start, _, lane = min(rank(lane, i, earliest) for lane in open_lanes)
        used[waits] = max(used[waits], lane - first + 1)
        lane_of[i], tails[lane] = lane, i
        ends[i] = free[lane] = start + cost[i]
        order.append(i)
        for j in after[i]:
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready, (-to_end[j], j))
    # Lanes count up without a gap.
    lane_of = [lane if lane < ahead else lane - ahead + used[False] for lane in lane_of]
    return order, lane_of, used[True]


def _giving_way(
    cost: Sequence[float],
    before: Sequence[Sequence[int]],
    to_end: Sequence[float],
    ancestors: Sequence[int],
) -> set[int]:
    """Large ops that may run in the background.

    The longest way through does not lead through them, by as much as half of what they cost; or
    they are so large that much else runs beside them.
    """
    start: list[float] = []
    for places in before:
        start.append(max((start[j] + cost[j] for j in places), default=0.0))
    longest = max(to_end, default=0.0)

    def beside(i: int) -> int:
        after = sum(above >> i & 1 for above in ancestors)
        return len(cost) - 1 - ancestors[i].bit_count() - after

    return {
        i
        for i, own in enumerate(cost)
        if (own >= LARGE and longest - (start[i] + to_end[i]) >= own / 2)
        or (own >= HUGE and beside(i) >= BESIDE)
    }


def _all_before(before: Sequence[Sequence[int]]) -> list[int]:
    """Of each op all that have ended when it starts, as bits by their places."""
    found: list[int] = []
    for places in before:
        bits = 0
        for i in places:
            bits |= found[i] | 1 << i
        found.append(bits)
    return found


def _across(before: Sequence[Sequence[int]], lanes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """What each op has to wait for in other lanes: no more than its own lane leaves open."""
    last: dict[int, int] = {}
    ancestors: list[int] = []
    found = []
    for i, (places, lane) in enumerate(zip(before, lanes, strict=True)):
        above = 0
        if lane in last:
            above = ancestors[last[lane]] | 1 << last[lane]
        waits = []
        for j in sorted(places, reverse=True):
            if not above >> j & 1:
                waits.append(j)
                above |= ancestors[j] | 1 << j
        ancestors.append(above)
        last[lane] = i
        found.append(tuple(sorted(waits)))
    return tuple(found)
