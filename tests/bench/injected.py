"""The learning step on rows that are given instead of drawn, for comparison with the peers.

The rows are injected through the program: what the stages put in the place of the sample is the
same work by a kernel for each part, without those that draw, so that ``index`` is an input, written
between the steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.device import Device
from onegraph.stages.program import Fragment, Launch, Merge, Parts
from onegraph.stages.registry import ALL
from onegraph.trainer.bench import BenchRun, BenchSubject
from onegraph.trainer.program import DqnPrograms

#: What draws: thresholds, and the descent that turns them into rows and their generations.
DRAWING = ("philox_thresholds", "tree_descend")


@dataclass(frozen=True)
class InjectedParts:
    """The trainer's parts, with a stage-4 sample that takes ``index`` as it stands."""

    programs: DqnPrograms

    def fragment(self, stage: str, program: str, group: str) -> Fragment:
        fragment = self.programs.fragment(stage, program, group)
        if (stage, program, group) != ("gpu-counters", "learn", "sample"):
            return fragment
        ops, scratch = self.programs.replay.sample_in_steps()
        kept = [op for op in ops if not (isinstance(op, Launch) and op.kernel in DRAWING)]
        assert len(kept) == len(ops) - len(DRAWING), "the replay draws by other kernels now"
        return Fragment(tuple(kept), (*scratch, *fragment.buffers))

    def merges(self, program: str) -> tuple[Merge, ...]:
        """None: a merged step draws its rows itself."""
        return ()


def injected_parts(programs: DqnPrograms) -> Parts:
    """`InjectedParts` of a trainer's programs."""
    return InjectedParts(programs)


class InjectedRun:
    """The step with every stage on, on injected rows."""

    def __init__(self, subject: BenchSubject, device: Device) -> None:
        self.subject = replace(subject, parts=injected_parts)
        self.run: BenchRun = self.subject.at(ALL, device)
        # Every row was written once, and none is overwritten: each has the generation 1.
        ones = np.ones(subject.shapes.draws, np.uint32)
        self.run.workspace.write("generation", ones)

    def step(self, indices: NDArray[Any]) -> None:
        """One step on the rows `indices`, as many as are drawn."""
        self.run.workspace.write("index", indices.astype(np.int32))
        self.run.step()

    def read(self, name: str) -> NDArray[Any]:
        """A buffer's contents."""
        return self.run.workspace.read(name)

    def close(self) -> None:
        self.run.close()
