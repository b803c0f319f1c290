"""The learning step by its phases' own kernels, in no more of an order than they need.

The passes of a step hardly depend on one another: online, target and auxiliary networks read what
the step has drawn, and only the losses bring them together. In their phases they run one after
another. Here the ops of a run of phases become one `Dag`, and the bits stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from onegraph.kernels.common.layout import DIAGNOSTICS
from onegraph.stages.program import (
    Buffer,
    Copy,
    Fragment,
    Launch,
    MatmulOp,
    Merge,
    Op,
    Ref,
    opened,
)
from onegraph.stages.schedule import regrouped
from onegraph.trainer.blocks.grouping import shares
from onegraph.trainer.phases import PHASES
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
        dag = regrouped(apart, shares=_shares)
        return Fragment((dag,), tuple(b for b in copies if b.name in used))


def regroupings(shapes: Shapes) -> tuple[RegroupedStep, ...]:
    """The ways to regroup a learning step: its passes, and all of it."""
    first, last = PHASES.index("spectral"), PHASES.index("post_aux")
    return (
        RegroupedStep("wide", shapes, PHASES[first : last + 1]),
        RegroupedStep("whole", shapes, PHASES),
    )


def _shares(op: MatmulOp) -> bool:
    return shares(op.m, op.n, op.k)


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
