"""What may end a walk-forward early."""

from __future__ import annotations

from pathlib import Path

from onegraph.trainer.loop import InterruptedRunError


class WalkforwardError(RuntimeError):
    """A walk-forward can't be done, or gone on with; the message says why and what would help."""


class InterruptedWalkError(InterruptedRunError):
    """The walk-forward was asked to stop, and stopped with the state of each run saved."""

    def __init__(self, root: Path, done: int, total: int) -> None:
        Exception.__init__(
            self,
            f"interrupted; {done} of {total} runs are finished and the others keep their state: go"
            f" on with --resume {root}",
        )
        self.checkpoint = root
