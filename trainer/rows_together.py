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
from typing import Any

from onegraph.stages.program import Buffer, Fragment, Launch, Op, Ref, Work
from onegraph.stages.schedule import taken_apart

#: What the common buffers' names begin with.
TOGETHER = "together"


def rows_together(
    ops: Sequence[Op], buffers: Iterable[Buffer], first: str, second: str
) -> Fragment:
    """`ops` with the rows of two passes in common buffers, and those buffers.

    A buffer that both passes have, of rows alike, is put together; one that only one of them has
    stays as it is.

    Args:
        ops: all that touch the passes' buffers, in a right order; what is forked or grouped among
            them is taken apart.
        buffers: those of the passes, among any others.
        first: what the names of the pass begin with whose rows come first.
        second: what those of the other begin with.
    """
    known = {b.name: b for b in buffers}
    works = taken_apart(ops)
    used = frozenset[str]().union(*(op.reads() | op.writes() for op in works))
    parts: dict[str, Ref] = {}
    made = []
    for name, one in known.items():
        rest = name.removeprefix(first)
        other = known.get(second + rest)
        if not name.startswith(first) or other is None or not {name, other.name} <= used:
            continue
        if (one.shape[1:], one.dtype, one.space) != (other.shape[1:], other.dtype, other.space):
            continue
        shape = (one.shape[0] + other.shape[0], *one.shape[1:])
        made.append(Buffer(TOGETHER + rest, shape, one.dtype))
        parts[name] = Ref(TOGETHER + rest, 0, prod(one.shape))
        parts[other.name] = Ref(TOGETHER + rest, prod(one.shape), prod(other.shape))
    return Fragment(tuple(_moved(op, parts) for op in works), tuple(made))


def _moved(op: Work, parts: Mapping[str, Ref]) -> Op:
    """The op with what is in `parts` where its part is."""

    def there(ref: Ref) -> Ref:
        part = parts.get(ref.buffer)
        if part is None or part.size is None:
            return ref
        size = part.size - ref.offset if ref.size is None else ref.size
        return Ref(part.buffer, part.offset + ref.offset, size)

    if isinstance(op, Launch):
        args = {k: there(v) if isinstance(v, Ref) else v for k, v in op.args.items()}
        return replace(op, args=args)
    refs = {f.name: getattr(op, f.name) for f in fields(op)}
    changed: dict[str, Any] = {k: there(v) for k, v in refs.items() if isinstance(v, Ref)}
    return replace(op, **changed)
