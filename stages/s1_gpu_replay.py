"""Stage 1, ``gpu-replay``: delete the CPU replay; only the GPU-resident buffer is left.

Gone with it: the dispatch on the replay kind, the batch upload, the read-back of TD errors and the
priority update on the host. Thresholds still come from the host's generator, which has to read the
priority total back first.
"""

from __future__ import annotations

from onegraph.stages.budget import Limit
from onegraph.stages.program import Parts, StepProgram
from onegraph.stages.stage import Stage

#: Groups that the replay serves; a program has those of them that it uses.
GROUPS = ("sample", "priorities", "insert", "statistics")


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Put the GPU replay's ops in the place of the CPU replay's."""
    for group in GROUPS:
        if group in program.groups():
            fragment = parts.fragment(STAGE.name, program.name, group)
            program = program.replace_group(group, fragment)
    return program


def budget(program: StepProgram) -> tuple[Limit, ...]:
    """One read-back (the total), one upload (the thresholds), with their allocation."""
    del program
    return tuple(
        Limit(kind, 1, tag="replay", stage=STAGE.name)
        for kind in ("dtoh", "htod", "alloc", "free", "host", "sync")
    )


STAGE = Stage(
    number=1,
    name="gpu-replay",
    summary="only the GPU-resident prioritized replay; no batch upload, no TD read-back",
    rewrite=rewrite,
    budget=budget,
)
