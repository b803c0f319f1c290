"""The end of a learning step by one kernel, for any network: what `update_step` can stand for.

From the gradients of the passes on, a step's ops are a chain of small launches: the gradient
budget, the vaccine's projection, the norm, Adam, the target, what is published, the quantile head's
readiness and the modulation of the TD errors. `with_update` finds them among a step's ops,
whichever of them a config has, and puts one launch in their place; all other ops stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onegraph.kernels.common.layout import ADAM_GROUPS
from onegraph.kernels.device.base import Device
from onegraph.kernels.fused.update_step import (
    ENDS,
    blocks_of,
    held_of,
    slot_bytes,
    terms_of,
    tiles_of,
)
from onegraph.kernels.learner.budget import Component
from onegraph.stages.program import (
    Buffer,
    Fragment,
    Launch,
    Memset,
    Merge,
    Op,
    ProgramError,
    Ref,
    changed,
)
from onegraph.trainer.learner import GRAD_VACCINE, Learner
from onegraph.trainer.publication import published_statistics
from onegraph.trainer.replay import ticket
from onegraph.trainer.shapes import Shapes

#: The launches that the kernel does the work of.
REPLACED = frozenset(
    {
        "component_norms",
        "apply_budget",
        "vaccine_partial",
        "project_gradient",
        "clip_factor",
        "grad_norm",
        "adam_step",
        "iqn_readiness",
        "maintain",
        "iql_modulate",
    }
)

Args = Mapping[str, Ref | int | float]


def covered(shapes: Shapes) -> tuple[str, ...]:
    """The phases that the fragment of `update` stands for.

    The backward passes are of them where a budget, a second gradient or a vaccine follows them.
    """
    config = shapes.config
    combined = config.learn.budget.on or config.learn.vaccine or shapes.network.denoise
    return (*(("post_aux",) if combined else ()), *_LAST)


_LAST = ("adam_grad", "adam", "maintenance", "iql_modulate")


def obstacle(shapes: Shapes, device: Device) -> str:
    """Why the kernel can't do the end of this learning step on a device; empty if it can."""
    config = shapes.config
    flags = {
        "with_aux": int(shapes.network.denoise is not None),
        "with_vaccine": int(config.learn.vaccine),
    }
    tiles = tiles_of(shapes.network.layout.ends)
    if held_of(tiles, device.largest_shared, **flags):
        return ""
    return (
        f"a block of the fused update holds {slot_bytes(**flags):,} bytes of parameters and"
        f" gradients at least, for which the {device.largest_shared:,} bytes of shared memory that"
        f" it has on {device.name} are too few"
    )


def update(shapes: Shapes, largest_shared: int) -> Fragment:
    """The phases `covered`, as stages from `gpu-counters` on have them, by one launch at their end.

    Args:
        shapes: sizes of the step.
        largest_shared: bytes of shared memory that a block may have.

    Raises:
        ProgramError: there is an `obstacle`.
    """
    work = Learner(shapes).work
    ops = [op for phase in covered(shapes) for op in work[phase] if phase != "iql_modulate"]
    ops += [*published_statistics(shapes).ops, *work["iql_modulate"]]
    found = with_update(shapes, largest_shared, [changed(op, _unblocked) for op in ops])
    return replace(found, buffers=(*found.buffers, *published_statistics(shapes).buffers))


def merge(shapes: Shapes, largest_shared: int) -> Merge:
    """`update` as what stage 7 takes."""
    return Merge("update", covered(shapes), update(shapes, largest_shared))


def rewriting(shapes: Shapes, largest_shared: int) -> Callable[[Sequence[Op]], Fragment]:
    """`with_update` of ops to come: those of whole phases, or of any run of them."""
    return lambda ops: with_update(shapes, largest_shared, ops)


def with_update(shapes: Shapes, largest_shared: int, ops: Sequence[Op]) -> Fragment:
    """`ops` with one launch in the place of those of `REPLACED`, and the buffers that it needs.

    Raises:
        ProgramError: the launches are not all there, or not next to one another; or not one tile
            fits `largest_shared` bytes of a block (see `obstacle`).
    """
    places = [i for i, op in enumerate(ops) if _replaced(op)]
    if not places:
        raise ProgramError("no op here is of a learning step's update")
    first, last = places[0], places[-1]
    found: dict[str, Args] = {}
    zeroed: list[Ref] = []
    for op in ops[first : last + 1]:
        if isinstance(op, Launch) and _replaced(op) and op.kernel not in found:
            found[op.kernel] = op.args
        elif isinstance(op, Memset) and op.dst.buffer == GRAD_VACCINE:
            zeroed.append(op.dst)
        else:
            raise ProgramError(
                f"{op.label} stands among the launches of a learning step's update, which would be"
                " one; an update is one of each of them, next to one another"
            )
    for kernels in (("grad_norm", "clip_factor"), ("adam_step",), ("maintain",)):
        if not found.keys() & set(kernels):
            raise ProgramError(
                f"a learning step's update has a launch of {' or '.join(kernels)}, and there is"
                " none here: it is one from stage 4 on, and its phases are merged together"
            )
    launch, buffers = _launch(shapes, largest_shared, found, zeroed)
    return Fragment((*ops[:first], launch, *ops[last + 1 :]), buffers)


def _replaced(op: Op) -> bool:
    return isinstance(op, Launch) and op.kernel in REPLACED


def _unblocked(op: Op) -> Op:
    return replace(op, blocking=False) if isinstance(op, Memset) else op


def _launch(
    shapes: Shapes, largest_shared: int, found: Mapping[str, Args], zeroed: Sequence[Ref]
) -> tuple[Launch, tuple[Buffer, ...]]:
    """The launch that does what the launches `found` do, by kernel, and its buffers.

    `zeroed` are ranges of the vaccine's gradient that do not count.
    """
    ends = shapes.network.layout.ends
    tiles = tiles_of(ends)
    adam, after = found["adam_step"], found["maintain"]
    budget, vaccine = found.get("apply_budget"), found.get("project_gradient")
    ready, rule = found.get("iqn_readiness"), found.get("iql_modulate")
    norm = found.get("clip_factor") or found["grad_norm"]
    flags = {
        "with_aux": int(budget["with_aux"]) if budget else 0,  # type: ignore[arg-type]
        "with_vaccine": int(vaccine is not None),
    }
    held = held_of(tiles, largest_shared, **flags)
    if not held:
        raise ProgramError(
            f"{largest_shared:,} bytes of shared memory of a block are too few for the fused"
            f" update, which needs {slot_bytes(**flags):,} beside its own"
        )
    for part in (ready, rule):
        if part and any(part[name] != after[name] for name in ("loss", "td") if name in part):
            raise ProgramError("the update's parts go by different losses or TD errors")

    own = {
        "partial": Buffer("update_squares", (tiles * terms_of(**flags) or 1,), "f64"),
        "barrier": ticket("update_barrier"),
    }
    none = Buffer("update_none", (1,), "f32")
    unused = dict.fromkeys(("aux", "vaccine", "q", "v_hi", "v_lo"), none)
    unused |= {
        "removed": Buffer("update_removed", (1,), "f32"),
        "ready": Buffer("update_ready", (2,), "f64"),
        "shares": Buffer(
            "update_shares",
            (len(Component),),
            "f64",
            initial=lambda: np.full(len(Component), 1.0 / len(Component)),
        ),
        "norms": Buffer("update_norms", (len(Component),), "f32"),
        "scales": Buffer("update_scales", (len(Component),), "f32"),
    }
    given: dict[str, Ref | int | float] = {name: Ref(b.name) for name, b in unused.items()}
    given |= {name: Ref(b.name) for name, b in own.items()}
    given |= {name: adam[name] for name in _ADAM}
    given |= {"theta": adam["param"], "clip": norm["clip"], "max_norm": norm["max_norm"]}
    given |= {name: after[name] for name in _AFTER}
    given |= {"budget_norm": 0.0, "readies": int(ready is not None)}
    given |= {"modulates": int(rule is not None)}
    if budget:
        given |= {name: budget[name] for name in ("shares", "norms", "scales")}
        given["budget_norm"] = budget["max_norm"]
        if flags["with_aux"]:
            given["aux"] = budget["aux"]
    if vaccine:
        given |= {name: vaccine[name] for name in ("vaccine", "removed")}
    given |= _prefixed("ready", ready or {}, ("decay", "low", "high"), 0.0)
    given |= _prefixed("modulate", rule or {}, ("k", "eps", "low", "high"), 1.0)
    given |= {"ready": ready["ready"]} if ready else {}
    given |= {name: rule[name] for name in ("q", "v_hi", "v_lo")} if rule else {}
    given |= dict(zip(ENDS, ends, strict=True)) | flags
    given |= {"tiles": tiles, "blocks": blocks_of(tiles), "held": held}
    given |= {"shared_bytes": held * slot_bytes(**flags)}
    given["vaccinated"] = _vaccinated(ends, zeroed)
    used = {value.buffer for value in given.values() if isinstance(value, Ref)}
    buffers = {b.name: b for b in (*own.values(), *unused.values()) if b.name in used}
    return Launch("update_step", given), tuple(buffers.values())


_ADAM = ("m", "v", "grad", "schedule", "skip", "decay", "beta1", "beta2", "eps")
_AFTER = (
    *("target", "loss", "td", "q_taken", "counters", "diagnostics", "record", "history"),
    *("every", "n", "ring"),
)


def _prefixed(
    prefix: str, args: Args, names: Sequence[str], absent: float
) -> dict[str, Ref | int | float]:
    return {f"{prefix}_{name}": args.get(name, absent) for name in names}


def _vaccinated(ends: Sequence[int], zeroed: Sequence[Ref]) -> int:
    """A bit for each group in which the vaccine's gradient is not zeroed.

    Raises:
        ProgramError: a range that is no group's.
    """
    starts = (0, *ends[:-1])
    ranges: dict[tuple[int, int | None], int] = {
        (start, end - start): group
        for group, (start, end) in enumerate(zip(starts, ends, strict=True))
    }
    bits = (1 << ADAM_GROUPS) - 1
    for ref in zeroed:
        group = ranges.get((ref.offset, ref.size))
        if group is None:
            raise ProgramError(f"{ref} is not the range of one Adam group, as the update needs it")
        bits &= ~(1 << group)
    return bits
