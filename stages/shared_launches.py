"""Which ops of a dag share a launch: those of one kernel, held back for one another where it pays.

Each launch is a node of a graph, and most of a small one's time is the node's. Ops that one launch
can do become ready at different times; the first may wait for the last where the way through
everything gets no longer by it, or hardly.

The algorithm starts with a launch for each op, and puts two of them together again and again. Two
can be one if their kernel has room for both and neither waits for the other, not even through
others: so no launch ever waits for itself. With the longest way to the start of each launch, and
the longest from its end on, the longest way through two as one is

    max(starts) + cost(both) + max(rests)

where two that start at the same time cost what the dearer one does: side by side they would share
the GPU just so. Of all pairs that one is taken which makes the longest way through everything least
longer; among equals, products of the same layer come first, and then what stands in the most
similar places, so that passes through the same layers go in step. It ends when no pair is left that
costs less than it saves (`WORTH`).

Products have a launch of `gemm_group.MEMBERS` at most, in which those whose rows follow one another
are one (`onegraph.kernels.learner.row_stacks`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import find
from onegraph.kernels.launch_group import most_members
from onegraph.kernels.learner.gemm_group import MEMBERS
from onegraph.kernels.learner.row_stacks import stacks
from onegraph.stages.node_costs import cost_of
from onegraph.stages.program import Launch, LaunchGroup, MatmulGroup, MatmulOp, Work

#: How much longer the way through everything may get for a node less, in nodes.
WORTH = 1.0

#: Nodes by which two starts may differ and be one.
_AT_ONCE = 1.0


def shared(
    works: Sequence[Work], before: Sequence[Sequence[int]], kinds: Sequence[Hashable]
) -> list[Work]:
    """The ops with groups in the place of those that share a launch, in an order that is right.

    Args:
        works: single launches, products, copies and memsets.
        before: of each, the places of those that it waits for; all are before it.
        kinds: of each, what it has in common with those that one launch can do with it; ``None``
            for an op that has a launch of its own. One of a kind are launches of one kernel and
            module that can be grouped, or products of one module.
    """
    state = _Launches(works, before, kinds)
    while state.join_best():
        pass
    return [state.op(i) for i in state.in_order()]


class _Launches:
    """Launches, each of some of the ops, and what each waits for.

    A launch goes by the place of its first op; the places of others that joined it are not
    `alive`.
    """

    def __init__(
        self, works: Sequence[Work], before: Sequence[Sequence[int]], kinds: Sequence[Hashable]
    ) -> None:
        count = len(works)
        self.works = works
        self.members = [[i] for i in range(count)]
        self.alive = np.ones(count, bool)
        self.waits = [set(places) for places in before]
        #: [i, j]: whether j waits for i, directly or through others.
        self.ahead = np.zeros((count, count), bool)
        for i, places in enumerate(before):
            for j in places:
                self.ahead[:, i] |= self.ahead[:, j]
                self.ahead[j, i] = True
        costs = list(map(cost_of, works))
        self.work = np.array([cost.work for cost in costs])
        self.floor = np.array([cost.floor for cost in costs])
        numbers = {kind: n for n, kind in enumerate(dict.fromkeys(kinds))}
        kind = np.array([-1 - i if k is None else numbers[k] for i, k in enumerate(kinds)])
        #: [i, j]: whether a launch has room for both, and whether they are of one layer.
        self.room = np.triu(kind[:, None] == kind[None, :], 1)
        layers = dict[Hashable, int]()
        layer = np.array([layers.setdefault(_layer(w), len(layers)) for w in works])
        self.layers = layer[:, None] == layer[None, :]

    def join_best(self) -> bool:
        """Make one of two launches, if there are two that gain by it."""
        i, j = np.nonzero(self.room & ~self.ahead & ~self.ahead.T)
        if not len(i):
            return False
        cost = 1.0 + np.maximum(self.work, self.floor)
        start, rest = self._ways(cost)
        longest = (start + cost + rest)[self.alive].max()
        apart = abs(start[i] - start[j])
        in_turn = 1.0 + np.maximum(
            self.work[i] + self.work[j], np.maximum(self.floor[i], self.floor[j])
        )
        both = np.where(apart < _AT_ONCE, np.maximum(cost[i], cost[j]), in_turn)
        through = np.maximum(start[i], start[j]) + both + np.maximum(rest[i], rest[j])
        longer = np.round(np.maximum(through - longest, 0.0), 6)
        behind = abs(rest[i] - rest[j])
        same = self.layers[i, j]
        wait = np.round(np.where(same, np.minimum(apart, behind), apart + behind), 6)
        best = np.lexsort((j, i, wait, ~same, longer))[0]
        if longer[best] > WORTH:
            return False
        self._join(int(i[best]), int(j[best]))
        return True

    def _join(self, i: int, j: int) -> None:
        """Let launch `i` do what `j` did."""
        self.members[i] += self.members[j]
        self.work[i] += self.work[j]
        self.floor[i] = max(self.floor[i], self.floor[j])
        self.alive[j] = False
        self.waits[i] |= self.waits[j]
        for waits in self.waits:
            if j in waits:
                waits.remove(j)
                waits.add(i)
        above, below = self.ahead[:, i] | self.ahead[:, j], self.ahead[i] | self.ahead[j]
        self.ahead |= np.outer(above, below)
        self.ahead[:, i] |= above
        self.ahead[i] |= below
        self.ahead[j] = self.ahead[:, j] = False
        self.layers[i] &= self.layers[j]
        self.layers[:, i] = self.layers[i]
        others = np.nonzero((self.room[i] | self.room[:, i]) & self.alive)[0]
        self.room[j] = self.room[:, j] = False
        for other in map(int, others):
            low, high = min(i, other), max(i, other)
            self.room[low, high] = self._fits([*self.members[i], *self.members[other]])

    def in_order(self) -> list[int]:
        """The launches, each behind those that it waits for."""
        ahead = self.ahead.sum(axis=0)
        return sorted(map(int, np.nonzero(self.alive)[0]), key=lambda i: (ahead[i], i))

    def _ways(self, costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each launch the longest way to its start, and from its end to that of everything."""
        order, cost = self.in_order(), costs.tolist()
        start, rest = [0.0] * len(cost), [0.0] * len(cost)
        for i in order:
            start[i] = max((start[j] + cost[j] for j in self.waits[i]), default=0.0)
        for i in reversed(order):
            for j in self.waits[i]:
                rest[j] = max(rest[j], rest[i] + cost[i])
        return np.array(start), np.array(rest)

    # ---------------------------------------------------------------- one launch

    def _ops(self, members: Sequence[int]) -> tuple[list[MatmulOp], list[Launch]]:
        ops = [self.works[i] for i in members]
        return (
            [op for op in ops if isinstance(op, MatmulOp)],
            [op for op in ops if isinstance(op, Launch)],
        )

    def _fits(self, members: Sequence[int]) -> bool:
        products, launches = self._ops(members)
        if products:
            return len(stacks([op.rows for op in products])) <= MEMBERS
        return len(launches) <= most_members(find(launches[0].kernel))

    def op(self, launch: int) -> Work:
        """What a launch does as one op. Longer sums stand first: a GPU starts them first."""
        members = sorted(self.members[launch])
        if len(members) == 1:
            return self.works[launch]
        products, launches = self._ops(members)
        module = (products or launches)[0].module
        if products:
            products.sort(key=lambda op: -op.k)
            inside = tuple(replace(op, module="shared", group="") for op in products)
            return MatmulGroup(inside, module=module)
        return LaunchGroup(
            tuple(replace(op, module="shared", group="") for op in launches), module=module
        )


def _layer(op: Work) -> Hashable:
    """What ops of the same layer of several passes have in common, whatever the parameters'."""
    if isinstance(op, MatmulOp):
        return (op.m, op.n, op.out.offset) if op.trans_a else (op.n, op.k, op.b.offset)
    return None
