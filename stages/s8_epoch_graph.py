"""Stage 8, ``epoch-graph``: the loop is ONE graph launch.

A round of steps, collecting and learning in their ratio, becomes the body of a while-node: the host
launches it once with a learning step to go up to, and may stop it between two rounds through pinned
memory. What a step is stays as it was, and steps that are timed or measured are launched by
themselves, because the body of a while-node can hold no event.

Inside the while-node CUPTI sees nothing but the control before it; how many turns there were is in
the device's counters, which the control publishes at each of them.
"""

from __future__ import annotations

from dataclasses import replace

from onegraph.stages.budget import Limit
from onegraph.stages.program import (
    GraphLaunch,
    Parts,
    Phase,
    ProgramError,
    StepProgram,
    WhileGraph,
    graphed,
    merge_buffers,
)
from onegraph.stages.s5_child_graphs import REBUILDING
from onegraph.stages.stage import Stage

#: What a launch of the loop does none of.
ROUND_TRIPS = (
    *("launch", "matmul", "memset", "memset_sync", "htod", "dtoh", "dtod"),
    *("alloc", "free", "sync", "host", "event_record", "event_set"),
)


def refusal(program: StepProgram) -> str:
    """What of a round is missing, or stands outside a graph and so can't be in one."""
    for part in program.phases:
        if not part.ops:
            return f"program {part.name} has no work, so there are no rounds to loop over"
    for phase, op in program.ops():
        if not isinstance(op, GraphLaunch):
            return (
                f"{op.label} of program {phase} stands outside a graph, so the host has to run each"
                " step"
            )
    return ""


def rewrite(program: StepProgram, parts: Parts) -> StepProgram:
    """Put a while-node around the round.

    The parts give the control (see `WhileGraph`) and its buffers.
    """
    if reason := refusal(program):
        raise ProgramError(f"program {program.name}: {reason}")
    fragment = parts.fragment(STAGE.name, program.name, "control")
    control = tuple(graphed(op) for op in fragment.ops)
    turn = tuple(op for _, op in program.ops())
    loop = WhileGraph(program.name, (*turn, *control), group="graph")
    return replace(
        program,
        phases=(Phase(program.name, (loop,)),),
        buffers=merge_buffers(program.buffers, fragment.buffers),
    )


def budget(program: StepProgram) -> tuple[Limit, ...]:
    """Exactly one graph launch for however many rounds, and nothing else."""
    del program
    nothing = tuple(Limit(kind, 0, stage=STAGE.name) for kind in (*ROUND_TRIPS, *REBUILDING))
    return (*nothing, Limit("graph_launch", 1, 1, stage=STAGE.name))


STAGE = Stage(
    number=8,
    name="epoch-graph",
    summary="rounds of steps in a while-node; one launch takes as many as it is asked for",
    rewrite=rewrite,
    requires=(6,),
    budget=budget,
    rewrites="round",
    refusal=refusal,
)
