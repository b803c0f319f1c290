"""Ops of one phase in an order that puts independent matrix products side by side, as one op.

An op's level is the number of ops that it has to wait for, one after another. Products of one level
do not depend on each other: select and target networks go layer by layer together, and so do the
gradients of a layer's parameters and of its input. Where they are small, a launch multiplies up to
four of them (`onegraph.kernels.learner.gemm_group`).

A larger product has blocks enough of its own, and in a group it takes its tiles from the others: on
an H200 two of 256 x 256 x 256 took 13.5 us in one launch and 5 us each on their own. Passes with
such products run side by side as branches of the graph instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onegraph.kernels.learner.gemm_group import MEMBERS, groups
from onegraph.stages.program import (
    Branches,
    MatmulGroup,
    MatmulOp,
    Op,
    ProgramError,
    Work,
    conflict,
    work,
)

#: Multiply-adds up to which a product shares a launch with others: 64 x 256 x 256 is the largest.
_SHARES_UP_TO = 1 << 22


def shares(m: int, n: int, k: int) -> bool:
    """Whether a product of these sizes gains from standing in a group."""
    return m * n * k <= _SHARES_UP_TO and groups([(m, n, k)] * 2)


def side_by_side(passes: Sequence[Sequence[Op]]) -> tuple[Op, ...]:
    """Passes of which none waits for another one: products in groups, or branches.

    Small products of all passes go level by level into groups, which saves nodes. As soon as there
    is one that has a launch of its own, each pass is a branch, with groups inside. Passes that do
    depend on one another are one branch, in the order given; one of a single op is not
    worth a fork and stands before the branches.

    Args:
        passes: launches, products and memsets, in an order that is right.

    Raises:
        ProgramError: an op of another kind.
    """
    products = [op for ops in passes for op in ops if isinstance(op, MatmulOp)]
    if all(shares(op.m, op.n, op.k) for op in products):
        return grouped_products([op for ops in passes for op in ops])
    return branched(passes)


def branched(passes: Sequence[Sequence[Op]]) -> tuple[Op, ...]:
    """`side_by_side`, with branches in any case."""
    apart = [grouped_products(ops) for ops in _independent(passes)]
    alone = [op for ops in apart if len(ops) == 1 for op in ops]
    branches = tuple(ops for ops in apart if len(ops) > 1)
    if len(branches) < 2:
        return (*alone, *(op for ops in branches for op in ops))
    return (*alone, Branches(branches))


def _independent(passes: Sequence[Sequence[Op]]) -> list[list[Op]]:
    """The passes, those that depend on one another joined."""
    apart: list[list[Op]] = []
    for ops in passes:
        mine = list(ops)
        bound = [other for other in apart if conflict(_works(other), _works(mine))]
        joined = [op for other in bound for op in other] + mine
        apart = [other for other in apart if other not in bound] + [joined] * bool(joined)
    return apart


def grouped_products(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The same work by level, with small products of a level in one op.

    Args:
        ops: launches, products and memsets, in an order that is right.

    Raises:
        ProgramError: an op of another kind.
    """
    levels: dict[int, list[Op]] = {}
    for op, level in zip(ops, _levels(ops), strict=True):
        levels.setdefault(level, []).append(op)
    return tuple(op for _, same in sorted(levels.items()) for op in _together(same))


def _levels(ops: Sequence[Op]) -> list[int]:
    """Of each op: one more than the highest of those before it that it must stay behind."""
    levels: list[int] = []
    works = _works(ops)
    for i, mine in enumerate(works):
        level = 0
        for j in range(i):
            if levels[j] >= level and conflict([works[j]], [mine]):
                level = levels[j] + 1
        levels.append(level)
    return levels


def _works(ops: Sequence[Op]) -> list[Work]:
    works = []
    for op in ops:
        if (found := work(op)) is None:
            raise ProgramError(
                f"{op.label} can't be ordered among matrix products: what it does is unknown"
            )
        works.append(found)
    return works


def _together(level: list[Op]) -> Iterator[Op]:
    """The ops of one level: products in groups, in the place of the first, and the rest as it is.

    Longer sums stand first in a group: a GPU starts its blocks in this order.
    """
    products = [op for op in level if isinstance(op, MatmulOp)]
    products.sort(key=lambda op: -op.k)
    small = [op for op in products if shares(op.m, op.n, op.k)]
    yield from (op for op in level if op not in small)
    for at in range(0, len(small), MEMBERS):
        members = tuple(small[at : at + MEMBERS])
        yield MatmulGroup(members) if len(members) > 1 else members[0]
