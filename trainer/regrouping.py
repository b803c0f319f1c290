"""The learning step by its phases' own kernels, in no more of an order than they need.

The passes of a step hardly depend on one another: online, target and auxiliary networks read what
the step has drawn, and only the losses bring them together. In their phases they run one after
another. Here the ops of a run of phases become one `Dag`. On the host the bits stay what they are;
on a GPU products in a group may have other tiles than alone, and agree to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from onegraph.kernels.common.layout import DIAGNOSTICS
from onegraph.kernels.device.base import Device
from onegraph.stages.program import (
    Buffer,
    Copy,
    Fragment,
    Launch,
    Merge,
    Op,
    Ref,
    opened,
)
from onegraph.stages.schedule import regrouped
from onegraph.trainer import fused_replay, fused_update
from onegraph.trainer.hindsight import Relabelling
from onegraph.trainer.joined_launches import joined
from onegraph.trainer.learner import Learner
from onegraph.trainer.phases import PHASES
from onegraph.trainer.rows_together import rows_together
from onegraph.trainer.shapes import Shapes


class StepForm(Protocol):
    """A way in which stage 7 does the learning step."""

    @property
    def name(self) -> str:
        """How it is printed, and asked for."""
        ...

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory that a block of its largest kernel asks for; 0: none of its own."""
        ...

    def merges(self) -> tuple[Merge, ...]:
        """What it puts in the place of phases."""
        ...

    def over(self, shapes: Shapes) -> StepForm:
        """The same way of doing the step of other sizes: over a replay of another capacity."""
        ...


@dataclass(frozen=True)
class RegroupedStep:
    """The ops of consecutive phases, regrouped by what they depend on.

    Attributes:
        phases: those that become one; of those before them that merge into one, its name.
        before: merges that come first: kernels that do some phases together, say.
    """

    name: str
    shapes: Shapes
    phases: tuple[str, ...]
    before: tuple[Merge, ...] = ()

    @property
    def shared_bytes(self) -> int:
        return 0

    def over(self, shapes: Shapes) -> RegroupedStep:
        return replace(self, shapes=shapes)

    def merges(self) -> tuple[Merge, ...]:
        return (*self.before, Merge(self.name, self.phases, self._regroup))

    def _regroup(self, ops: tuple[Op, ...]) -> Fragment:
        copies = (
            Buffer("seen_td", (self.shapes.batch,), "f32"),
            Buffer("seen_diagnostics", (DIAGNOSTICS,), "i64"),
        )
        apart = list(opened(ops))
        for copy in copies:
            apart = _with_copy(apart, copy.name.removeprefix("seen_"), copy.name)
        used = frozenset().union(*(op.reads() for op in apart))
        dag = regrouped(apart)
        return Fragment((dag,), tuple(b for b in copies if b.name in used))


@dataclass(frozen=True)
class ComposedStep:
    """One kernel for the draw, one for the update, one for the priorities, and the passes between.

    Attributes:
        hindsight: how drawn rows are relabelled, if they are.
        largest_shared: bytes of shared memory that a block may have.
        regroups: whether the passes are regrouped too; else they stay one after another.
        launches: whether launches of one kernel then share one where that pays, and the denoising
            pass has its rows behind the batch's.
    """

    name: str
    shapes: Shapes
    hindsight: Relabelling | None
    largest_shared: int
    regroups: bool = False
    launches: bool = False

    @property
    def shared_bytes(self) -> int:
        ops = fused_update.update(self.shapes, self.largest_shared).ops
        return max(_shared_bytes(op) for op in ops)

    def over(self, shapes: Shapes) -> ComposedStep:
        return replace(self, shapes=shapes)

    def merges(self) -> tuple[Merge, ...]:
        first, last = PHASES.index("spectral"), PHASES.index("iql_modulate")
        return (
            Merge(
                "draw",
                fused_replay.DRAWS,
                fused_replay.draw(self.shapes, self.hindsight, follow_up=not self.regroups),
            ),
            Merge("passes_and_update", PHASES[first : last + 1], self._passes),
            Merge("write_back", fused_replay.WRITES, fused_replay.write_back(self.shapes)),
        )

    def _passes(self, ops: tuple[Op, ...]) -> Fragment:
        found = fused_update.with_update(self.shapes, self.largest_shared, ops)
        if not self.regroups:
            return found
        learner = Learner(self.shapes)
        ops, own = (*learner.work["counters"], *opened(found.ops)), found.buffers
        if self.launches:
            passes = rows_together(ops, learner.buffers, "online", "noised")
            ops, own = joined(passes.ops), (*own, *passes.buffers)
        return Fragment((regrouped(ops, launches=self.launches),), own)


def _shared_bytes(op: Op) -> int:
    value = op.args.get("shared_bytes", 0) if isinstance(op, Launch) else 0
    return value if isinstance(value, int) else 0


def regroupings(
    shapes: Shapes, device: Device, hindsight: Relabelling | None = None
) -> tuple[StepForm, ...]:
    """The ways to do a learning step of any network with fewer nodes in a row, for a device.

    Args:
        shapes: sizes of the step.
        device: where it runs.
        hindsight: what `onegraph.trainer.hindsight.relabelling` makes of the config.
    """
    first, last = PHASES.index("spectral"), PHASES.index("post_aux")
    regrouped_ones = (
        RegroupedStep("wide", shapes, PHASES[first : last + 1]),
        RegroupedStep("whole", shapes, PHASES),
    )
    if fused_update.obstacle(shapes, device) or fused_replay.obstacle(shapes, hindsight):
        return regrouped_ones
    given = shapes, hindsight, device.largest_shared
    return (
        *regrouped_ones,
        ComposedStep("ends", *given),
        ComposedStep("ends-wide", *given, regroups=True),
        ComposedStep("ends-grouped", *given, regroups=True, launches=True),
    )


def _with_copy(ops: Sequence[Op], name: str, copy: str) -> list[Op]:
    """`ops`, in which what reads `name` last before others change it reads a copy.

    So who changes it does not wait for who reads what was there before. Statistics read the TD
    errors and the diagnostics when the parameters have moved; what changes both has no other reason
    to wait for that. Where nobody changes them afterwards, nothing is copied.
    """
    writers = [i for i, op in enumerate(ops) if name in op.writes()]
    readers = [i for i, op in enumerate(ops) if _only_reads(op, Ref(name))]
    if not (ahead := [r for r in readers if writers and r < writers[-1]]):
        return list(ops)
    made = max((w for w in writers if w < ahead[-1]), default=-1)
    found = [
        _reading(op, Ref(name), Ref(copy)) if made < i <= ahead[-1] and i in ahead else op
        for i, op in enumerate(ops)
    ]
    found.insert(made + 1, Copy(Ref(copy), Ref(name), "dtod"))
    return found


def _only_reads(op: Op, array: Ref) -> bool:
    return isinstance(op, Launch) and array in op.args.values() and array.buffer not in op.writes()


def _reading(op: Op, array: Ref, instead: Ref) -> Op:
    """The launch that reads `instead` by every parameter by which it read `array`."""
    assert isinstance(op, Launch)
    return replace(op, args={p: instead if v == array else v for p, v in op.args.items()})
