"""Stage 4, ``gpu-counters``: the step asks nothing of the host any more.

(a) kernels launched outside graphs and kernels captured into graphs come from separate modules;
(b) gathers write straight into the trainer's padded buffers; (c) one kernel advances every counter
and writes every scheduled value; (d) memset goes through the asynchronous call; (e) what the host
wants to see is published to a pinned record and a device ring. What remains is launches.
"""

from __future__ import annotations

from dataclasses import replace

from onegraph.stages.budget import Limit
from onegraph.stages.program import LAUNCHING, Memset, Op, Parts, StepProgram
from onegraph.stages.stage import Stage

#: Groups that the owner supplies a host-free form of; a program has those of them that it uses.
GROUPS = ("sample", "counters", "act", "statistics")

#: What the host may no longer do in a step.
HOST_SIDE = ("htod", "dtoh", "dtod", "host", "sync", "alloc", "free", "memset_sync")


def _without_host(op: Op) -> Op:
    if isinstance(op, LAUNCHING) and op.module == "shared":
        return replace(op, module="ungraphed")
    if isinstance(op, Memset):
        return replace(op, blocking=False)
    return op


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Move counters, schedules, acting and statistics to the device."""
    for group in GROUPS:
        if group in program.groups():
            fragment = parts.fragment(STAGE.name, program.name, group)
            program = program.replace_group(group, fragment)
    return program.map_ops(_without_host)


def budget(program: StepProgram) -> tuple[Limit, ...]:
    """No host work, no copy, no synchronisation; events only as stage 3 allows."""
    del program
    return tuple(
        Limit(kind, 0, stage=STAGE.name) for kind in (*HOST_SIDE, "event_record", "event_set")
    )


STAGE = Stage(
    number=4,
    name="gpu-counters",
    summary="counters, schedules and statistics on the device; only launches remain",
    rewrite=rewrite,
    requires=(1, 2),
    budget=budget,
)
