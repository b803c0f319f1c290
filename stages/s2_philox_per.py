"""Stage 2, ``philox-per``: draw on the device.

A Philox kernel reads the priority total from device memory and writes the thresholds, into buffers
that are allocated once. Sampling and the priority update then ask nothing of the host.
"""

from __future__ import annotations

from onegraph.stages.budget import Limit
from onegraph.stages.program import Parts, StepProgram
from onegraph.stages.stage import Stage


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Replace host thresholds by the Philox kernel, and per-step scratch by standing buffers."""
    if "sample" not in program.groups():
        return program
    return program.replace_group("sample", parts.fragment(STAGE.name, program.name, "sample"))


def budget(program: StepProgram) -> tuple[Limit, ...]:
    """Sampling and priorities: no allocation, no copy to or from the host."""
    del program
    return tuple(
        Limit(kind, 0, tag="replay", stage=STAGE.name)
        for kind in ("dtoh", "htod", "alloc", "free", "host", "sync")
    )


STAGE = Stage(
    number=2,
    name="philox-per",
    summary="thresholds from a Philox kernel; every sampling buffer allocated once",
    rewrite=rewrite,
    requires=(1,),
    budget=budget,
)
