"""Passes through the same layers with their rows in common buffers, one behind the other.

The denoising pass goes through the online network's trunk as the batch does: the same matrices,
other rows. Where the rows of both lie in one buffer, their products are one to a launch
(`onegraph.kernels.learner.row_stacks`), and a launch has room for others. Nothing is computed
otherwise, and nothing in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from math import prod

from onegraph.stages.program import Buffer, Fragment, Launch, Op, Ref
from onegraph.stages.schedule import taken_apart

#: What the common buffers' names begin with.
TOGETHER = "together"


def rows_together(
    ops: Sequence[Op], buffers: Iterable[Buffer], first: str, second: str
) -> Fragment:
    """`ops` with the rows of two passes in common buffers, and those buffers.

    Args:
        ops: all that touch the passes' buffers, in a right order; what is forked or grouped among
            them is taken apart.
        buffers: those of the passes, among any others.
        first, second: prefixes of the passes' names. A buffer that both have, of rows alike, is
            put together; one that only one of them has stays as it is.
    """
    known = {b.name: b for b in buffers}
    works = taken_apart(ops)
    used = frozenset[str]().union(*(op.reads() | op.writes() for op in works))
    moved: dict[str, tuple[Buffer, int]] = {}
    for name, one in known.items():
        other = known.get(second + name.removeprefix(first))
        if not name.startswith(first) or other is None or not {name, other.name} <= used:
            continue
        if (one.shape[1:], one.dtype, one.space) != (other.shape[1:], other.dtype, other.space):
            continue
        shape = (one.shape[0] + other.shape[0], *one.shape[1:])
        both = Buffer(TOGETHER + name.removeprefix(first), shape, one.dtype)
        moved[name] = both, 0
        moved[other.name] = both, prod(one.shape)
    made = dict.fromkeys(both for both, _ in moved.values())
    return Fragment(tuple(_moved(op, moved, known) for op in works), tuple(made))


def _moved(op: Op, moved: Mapping[str, tuple[Buffer, int]], known: Mapping[str, Buffer]) -> Op:
    def there(value: object) -> object:
        if not isinstance(value, Ref) or value.buffer not in moved:
            return value
        both, start = moved[value.buffer]
        size = value.size
        if size is None:
            size = prod(known[value.buffer].shape) - value.offset
        return Ref(both.name, start + value.offset, size)

    if isinstance(op, Launch):
        return replace(op, args={name: there(value) for name, value in op.args.items()})
    changed = {f.name: there(getattr(op, f.name)) for f in fields(op)}
    return replace(op, **{name: value for name, value in changed.items() if isinstance(value, Ref)})
