"""Ops in a right order, regrouped by what each depends on.

Phases are an order that people can follow, and more of an order than the numbers need: a pass over
one state does not wait for a pass over another. `regrouped` takes the ops of some phases, finds
what each of them touches, and makes a `Dag` of them: products share a launch where that pays, and
launches of one kernel if asked to (`onegraph.stages.shared_launches`), and each op has the edges
that it needs and few others.

The lanes are dealt by list scheduling (Graham 1969, "Bounds on multiprocessing timing anomalies"):
of the ops that are ready, the one with the longest way to the end comes first, and goes where it
can start soonest. Large ops that the longest way does not lead through go to lanes in the
background. What an op costs is a rough figure, and decides on nothing but speed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from onegraph.kernels.catalogue import find
from onegraph.kernels.device.base import BACKGROUND_LANES
from onegraph.kernels.launch_group import most_members
from onegraph.kernels.learner.gemm_group import groups
from onegraph.stages.dag import Dag, dependences
from onegraph.stages.node_costs import cost_of
from onegraph.stages.program import (
    Launch,
    LaunchGroup,
    MatmulGroup,
    MatmulOp,
    Op,
    ProgramError,
    Work,
    opened,
    work,
)
from onegraph.stages.shared_launches import shared

#: Lanes that a dag has at most. Each with large products has a workspace of its own on a GPU.
LANES = 8

#: Cost, in nodes, from which an op goes to the background where the way to the end leaves it time:
#: it fills the GPU, and would keep what everything waits for from starting.
LARGE = 4.0

#: Cost from which it does though it has none, and the ops that then have to run beside it: they
#: leave most of a GPU idle, so that it loses little by giving way.
HUGE, BESIDE = 16.0, 16

Shares = Callable[[MatmulOp], bool]


def fits_a_group(op: MatmulOp) -> bool:
    """Whether a device takes the product together with others, in one launch."""
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
        launches: whether launches of one kernel share one, too, and not products alone.
        lanes: how many there are at most.

    Raises:
        ProgramError: no op, one of another kind or one that a dag can't hold, or no lane.
    """
    if lanes < 1:
        raise ProgramError(f"a schedule needs a lane, got {lanes}; give 1 or more")
    works = taken_apart(ops)
    kinds = [_kind(op, shares, launches) for op in works]
    grouped = shared(works, _direct(dependences(works)), kinds)
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


def taken_apart(ops: Sequence[Op]) -> list[Work]:
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


def _kind(op: Work, shares: Shares, launches: bool) -> Hashable:
    """What ops have in common that one launch can do; ``None``: this one has its own."""
    if isinstance(op, MatmulOp) and fits_a_group(op) and shares(op):
        return op.module, op.spec.is_long
    if isinstance(op, Launch) and launches and most_members(find(op.kernel)) > 1:
        return op.module, op.kernel
    return None


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


def _scheduled(
    works: Sequence[Work], before: Sequence[Sequence[int]], lanes: int
) -> tuple[list[int], list[int], int]:
    """The ops in the order of their starts, the lane of each, and how many lanes are behind.

    Large ops that have time are dealt to lanes of their own, the last ones.
    """
    costs = list(map(cost_of, works))
    cost = [c.nodes for c in costs]
    after: list[list[int]] = [[] for _ in works]
    for i, places in enumerate(before):
        for j in places:
            after[j].append(i)
    to_end = [0.0] * len(works)
    for i in reversed(range(len(works))):
        to_end[i] = cost[i] + max((to_end[j] for j in after[i]), default=0.0)
    ancestors = _all_before(before)
    behind = set[int]()
    if lanes > BACKGROUND_LANES:
        behind = _giving_way([1.0 + c.work for c in costs], cost, before, to_end, ancestors)
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
    filling: Sequence[float],
    cost: Sequence[float],
    before: Sequence[Sequence[int]],
    to_end: Sequence[float],
    ancestors: Sequence[int],
) -> set[int]:
    """Large ops that may run in the background: those whose work fills the GPU for long.

    The longest way through does not lead through them, by as much as half of what they cost; or
    they are so large that much else runs beside them.

    `filling` has of each op the nodes that it costs by its work alone, as if no sum were too long;
    the rest is as `_scheduled` has it.
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
        for i, own in enumerate(filling)
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
