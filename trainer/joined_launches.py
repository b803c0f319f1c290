"""Launches whose result the next one reads by row, as one: what residual blocks have between them.

A block's sum is read by the normalisation that the next block begins with, and the gradient that
comes out of a normalisation, or of a head of quantiles, is what the block before scales for its
branch. Either pair is one launch (`add_norm`, `layer_norm_grad` and `iqn_mix_grad` with a branch),
with the bits of both, and one node less of the longest way through a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onegraph.stages.program import Launch, Op, Work, conflict, work

Join = Callable[[Launch, Launch], Launch | None]


def joined(ops: Sequence[Op]) -> tuple[Op, ...]:
    """`ops` with one launch in the place of each such pair, where the first of the two stood.

    What stands between the two must not touch what the second writes, nor write what it reads;
    else the pair stays.

    Args:
        ops: single ones, in a right order.
    """
    found: list[Op] = []
    gone: set[int] = set()
    for i, op in enumerate(ops):
        if i in gone:
            continue
        if isinstance(op, Launch) and (join := _JOINS.get(op.kernel)) is not None:
            for j in range(i + 1, len(ops)):
                other = ops[j]
                if j in gone or not isinstance(other, Launch):
                    continue
                both = join(op, other)
                if both is not None and _can_move(other, ops[i + 1 : j]):
                    op = both
                    gone.add(j)
                    break
        found.append(op)
    return tuple(found)


def _can_move(op: Launch, over: Sequence[Op]) -> bool:
    works: list[Work] = [w for other in over if (w := work(other)) is not None]
    return len(works) == len(over) and conflict(works, [op]) is None


def _add_norm(add: Launch, norm: Launch) -> Launch | None:
    """`scaled_add` and the `layer_norm` of its sum."""
    a, b = add.args, norm.args
    if norm.kernel != "layer_norm" or norm.module != add.module or a["out"] != b["x"]:
        return None
    if a["n"] != int(b["rows"]) * int(b["cols"]):  # type: ignore[arg-type]
        return None
    args = {"a": a["a"], "b": a["b"], "depth": a["scale"], "total": a["out"]}
    args |= {name: b[name] for name in ("scale", "shift", "out", "mean", "rstd")}
    args |= {name: b[name] for name in ("rows", "cols", "eps")}
    return Launch("add_norm", {**args, "scaled": a["scaled"]}, module=add.module)


def _with_branch(grad: Launch, scaled: Launch) -> Launch | None:
    """A gradient of features and the `scaled_add_grad` of it, by the kernel that leaves it."""
    result, rows, cols = _FEATURES[grad.kernel]
    a, b = grad.args, scaled.args
    if scaled.kernel != "scaled_add_grad" or scaled.module != grad.module:
        return None
    if a[result] != b["grad_out"] or a["with_branch"]:
        return None
    if b["n"] != int(a[rows]) * int(a[cols]):  # type: ignore[arg-type]
        return None
    args = {**a, "depth": b["scale"], "grad_branch": b["grad_b"], "with_branch": 1}
    return Launch(grad.kernel, args, module=grad.module)


#: Of each kernel that leaves the gradient of what a block gives: by which parameters, of which
#: shape.
_FEATURES = {
    "layer_norm_grad": ("grad_in", "rows", "cols"),
    "iqn_mix_grad": ("grad_features", "rows", "hidden"),
}

_JOINS: dict[str, Join] = {"scaled_add": _add_norm, **dict.fromkeys(_FEATURES, _with_branch)}
