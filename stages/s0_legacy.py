"""Stage 0, ``legacy``: the step as the trainer emits it, which the later stages are measured by."""

from __future__ import annotations

from onegraph.stages.program import Parts, StepProgram
from onegraph.stages.stage import Stage


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """The program itself."""
    del parts
    return program


STAGE = Stage(
    number=0,
    name="legacy",
    summary="prioritized replay, hindsight and counters on the host; read-backs every step",
    rewrite=rewrite,
)
