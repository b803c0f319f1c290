"""Ops of one phase in an order that puts independent matrix products side by side, as one op.

An op's level is the number of ops that it has to wait for, one after another. Products of one level
do not depend on each other: select and target networks go layer by layer together, and so do the
gradients of a layer's parameters and of its input. Where they are small, a launch multiplies up to
four of them (`onegraph.kernels.learner.gemm_group`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onegraph.kernels.catalogue import find
from onegraph.kernels.learner.gemm_group import MEMBERS, groups
from onegraph.stages.program import Launch, MatmulGroup, MatmulOp, Memset, Op, ProgramError, Ref


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
    touched = [_touched(op) for op in ops]
    for i, mine in enumerate(touched):
        level = 0
        for j in range(i):
            if levels[j] >= level and _conflict(touched[j], mine):
                level = levels[j] + 1
        levels.append(level)
    return levels


_Touched = tuple[tuple[Ref, ...], tuple[Ref, ...]]


def _touched(op: Op) -> _Touched:
    """What an op reads, and what it writes."""
    if isinstance(op, MatmulOp):
        return op.touched, op.written
    if isinstance(op, Memset):
        return (), (op.dst,)
    if isinstance(op, Launch):
        accesses = {param.name: param.access for param in find(op.kernel).params}
        refs = [(accesses[k], v) for k, v in op.args.items() if isinstance(v, Ref)]
        return (
            tuple(r for access, r in refs if access in ("in", "inout")),
            tuple(r for access, r in refs if access in ("out", "inout")),
        )
    raise ProgramError(
        f"{op.label} can't be ordered among matrix products: what it does is unknown"
    )


def _conflict(before: _Touched, after: _Touched) -> bool:
    return _meet(before[1], after[0]) or _meet(before[1], after[1]) or _meet(before[0], after[1])


def _meet(some: Sequence[Ref], others: Sequence[Ref]) -> bool:
    return any(a.overlaps(b) for a in some for b in others)


def _together(level: list[Op]) -> Iterator[Op]:
    """The ops of one level: products in groups, in the place of the first, and the rest as it is.

    Longer sums stand first in a group: a GPU starts its blocks in this order.
    """
    products = [op for op in level if isinstance(op, MatmulOp)]
    products.sort(key=lambda op: -op.k)
    small = [op for op in products if groups([(op.m, op.n, op.k)] * 2)]
    yield from (op for op in level if op not in small)
    for at in range(0, len(small), MEMBERS):
        members = tuple(small[at : at + MEMBERS])
        yield MatmulGroup(members) if len(members) > 1 else members[0]
