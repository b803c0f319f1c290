"""Ops of one phase in an order that puts independent matrix products side by side, as one op.

An op's level is the number of ops that it has to wait for, one after another. Products of one level
do not depend on each other: select and target networks go layer by layer together, and so do the
gradients of a layer's parameters and of its input. Where they are small, a launch multiplies up to
four of them (`onegraph.kernels.learner.gemm_group`), and of those with long sums four of another
(`onegraph.kernels.learner.matmul_long`).

Passes of nothing but products share launches where they are larger too (on an H200 three of
512 x 512 x 512 take 35 us in one launch, and 13 us each on their own). Where other work stands
between larger products, the passes run side by side as branches of the graph instead, so that none
waits for the longest of a level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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

#: Branches that products which nothing waits for are dealt among.
_HANDS = 4


def shares(op: MatmulOp) -> bool:
    """Whether a product gains from standing in a group, whatever stands beside it."""
    return op.spec.is_long or (op.m * op.n * op.k <= _SHARES_UP_TO and _groups(op))


def _groups(op: MatmulOp) -> bool:
    return op.spec.is_long or groups([(op.m, op.n, op.k)] * 2, op.precision)


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
    every = [op for ops in passes for op in ops]
    products = [op for op in every if isinstance(op, MatmulOp)]
    if all(map(shares, products)):
        return grouped_products(every)
    if len(products) == len(every) and all(map(_groups, products)):
        return grouped_products(every, _groups)
    return branched(passes)


def branched(passes: Sequence[Sequence[Op]]) -> tuple[Op, ...]:
    """`side_by_side`, with branches in any case, in up to three waves.

    First comes what each pass begins with, a branch for each side that it begins on (a trunk, the
    embedding of quantile levels); then what is left of it where those meet; last the large
    gradients of weights, for which nothing waits, dealt among some branches.
    """
    starts, chains, last = list[list[Op]](), list[list[Op]](), list[MatmulOp]()
    for ops in _independent(passes):
        chain, free = _free_products(ops)
        parts, rest = _starts(chain)
        starts += parts
        chains.append(rest)
        last += free
    return (*_fork(starts), *_fork(chains), *_fork(_dealt(last)))


def _fork(lists: Sequence[Sequence[Op]]) -> tuple[Op, ...]:
    """Lists that do not depend on one another as branches; a single op stands before them."""
    apart = [grouped_products(ops) for ops in lists]
    alone = [op for ops in apart if len(ops) == 1 for op in ops]
    branches = tuple(ops for ops in apart if len(ops) > 1)
    if len(branches) < 2:
        return (*alone, *(op for ops in branches for op in ops))
    return (*alone, Branches(branches))


def _free_products(ops: Sequence[Op]) -> tuple[list[Op], list[MatmulOp]]:
    """The ops without the large gradients of weights that no later one waits for; and those."""
    works = _works(ops)
    chain, free = list[Op](), list[MatmulOp]()
    for i, op in enumerate(ops):
        gradient = isinstance(op, MatmulOp) and op.trans_a and (op.spec.is_long or not shares(op))
        if gradient and not conflict([works[i]], works[i + 1 :]):
            assert isinstance(op, MatmulOp)
            free.append(op)
        else:
            chain.append(op)
    return chain, free


def _starts(ops: list[Op]) -> tuple[list[list[Op]], list[Op]]:
    """Lists that begin apart, up to the first op that waits for two of them; and the rest."""
    works = _works(ops)
    apart: list[list[int]] = []
    end = len(ops)
    for i, mine in enumerate(works):
        bound = [other for other in apart if conflict([works[j] for j in other], [mine])]
        if len(bound) > 1:
            end = i
            break
        if bound:
            bound[0].append(i)
        else:
            apart.append([i])
    if sum(len(part) > 1 for part in apart) < 2:
        return [ops], []
    return [[ops[i] for i in part] for part in apart], ops[end:]


def _dealt(products: Sequence[MatmulOp]) -> list[list[Op]]:
    """Products in `_HANDS` lists, the largest first and each list in turn.

    Those with long sums are together in the first, where they share launches.
    """
    ordered = sorted(products, key=lambda op: -op.m * op.n * op.k)
    long = [op for op in ordered if op.spec.is_long]
    rest = [op for op in ordered if not op.spec.is_long]
    units = [*([long] if long else []), *([op] for op in rest)]
    return [
        [op for unit in units[i::_HANDS] for op in unit] for i in range(min(_HANDS, len(units)))
    ]


def _independent(passes: Sequence[Sequence[Op]]) -> list[list[Op]]:
    """The passes, those that depend on one another joined."""
    apart: list[list[Op]] = []
    for ops in passes:
        mine = list(ops)
        bound = [other for other in apart if conflict(_works(other), _works(mine))]
        joined = [op for other in bound for op in other] + mine
        apart = [other for other in apart if other not in bound] + [joined] * bool(joined)
    return apart


def grouped_products(
    ops: Sequence[Op], takes: Callable[[MatmulOp], bool] = shares
) -> tuple[Op, ...]:
    """The same work by level, with products of a level in one op.

    Args:
        ops: launches, products and memsets, in an order that is right.
        takes: whether a product may stand in a group; small ones do.

    Raises:
        ProgramError: an op of another kind.
    """
    levels: dict[int, list[Op]] = {}
    for op, level in zip(ops, _levels(ops), strict=True):
        levels.setdefault(level, []).append(op)
    return tuple(op for _, same in sorted(levels.items()) for op in _together(same, takes))


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


def _together(level: list[Op], takes: Callable[[MatmulOp], bool]) -> Iterator[Op]:
    """The ops of one level: products in groups, behind the rest as it is.

    Longer sums stand first in a group: a GPU starts its blocks in this order.
    """
    products = [op for op in level if isinstance(op, MatmulOp)]
    products.sort(key=lambda op: -op.k)
    small = [op for op in products if takes(op)]
    yield from (op for op in level if op not in small)
    for long in (False, True):
        alike = [op for op in small if op.spec.is_long is long]
        for at in range(0, len(alike), MEMBERS):
            members = tuple(alike[at : at + MEMBERS])
            yield MatmulGroup(members) if len(members) > 1 else members[0]
