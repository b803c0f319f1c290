"""What stands in the place of an environment where there are only recorded transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from onegraph.stages.program import Buffer, ProgramError
from onegraph.trainer.envs.base import TRAINING_LANES, LaneNames


@dataclass(frozen=True)
class RecordedEnvironment:
    """The sizes of states and actions that were recorded; it can't be stepped."""

    observation_width: int
    actions: int
    lanes: int = 1
    names: LaneNames = TRAINING_LANES

    @property
    def goal(self) -> None:
        """The columns do not say which of them are a goal."""
        return

    def buffers(self) -> tuple[Buffer, ...]:
        """None: no lane is ever stepped."""
        return ()

    def step(self) -> NoReturn:
        """There is nothing to step."""
        raise ProgramError(
            "recorded transitions can't be stepped; name their environment (env.kind)"
        )

    reset = step
