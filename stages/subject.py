"""A loop that stages migrate, as verification, benchmarks and reports see it.

Whoever owns a loop gives it in this form once, and gets all three (`docs/writing-a-stage.md`). A
loop that is one program has it ready made: `onegraph.stages.program_subject`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from onegraph.kernels.device.base import Device
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.budget import Budget
from onegraph.stages.registry import StageSet
from onegraph.stages.runner import Runner
from onegraph.stages.stage import Stage


class SubjectRun(Protocol):
    """The loop at one set of stages on one device, ready to step.

    Two runs of one subject do the same work from the same start, whatever their stages.
    """

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The programs' runners by program name, in the order in which a step runs them."""
        ...

    @property
    def budgets(self) -> Mapping[str, Budget]:
        """What a step of each program may do at these stages."""
        ...

    def step(self, *, timed: bool = False) -> Mapping[str, StepCounts]:
        """One step of every program; the device calls of each by program name."""
        ...

    def choices(self) -> NDArray[Any]:
        """What the last step drew or decided (sampled indices); must not differ between stages."""
        ...

    def parameters(self) -> NDArray[Any]:
        """The numbers that the loop works on; must not differ between stages."""
        ...

    def close(self) -> None:
        """Free what the run holds on the device."""
        ...


class Subject(Protocol):
    """A loop, and the stages that there are for it."""

    @property
    def name(self) -> str: ...

    @property
    def known(self) -> Sequence[Stage]:
        """The loop's stages in order, `legacy` first."""
        ...

    def at(self, stages: StageSet, device: Device) -> SubjectRun:
        """The loop with `stages` on, on `device`, at its start."""
        ...
