"""The replay's part of a learning step by two kernels: what stage 7 can put in the place of phases.

`draw` has the phases `DRAWS`, from the thresholds to the batch's weights and the step's counters,
and `write_back` has `WRITES`, from the TD errors to the root of the tree. Both give the bits of the
kernels that they replace, for a batch of any size: prioritized or uniform, with a vaccine batch
behind it or none, with hindsight or without.
"""

from __future__ import annotations

import numpy as np

from onegraph.kernels.fused import draw_batch
from onegraph.kernels.fused import write_back as writing
from onegraph.kernels.replay import sample_batch
from onegraph.stages.program import Buffer, Fragment, Launch, Ref
from onegraph.trainer.hindsight import Relabelling
from onegraph.trainer.learner import Learner
from onegraph.trainer.replay import (
    BATCH,
    DRAWN_ARGS,
    DRAWN_ROWS,
    PRIORITY_ARGS,
    RING_ARGS,
    Args,
    batch_buffers,
    draw_buffers,
    draw_sizes,
    priority_sizes,
    relabelling_args,
    ring_buffers,
    ticket,
)
from onegraph.trainer.shapes import Shapes

#: The phases in whose place `draw` and `write_back` can stand.
DRAWS = ("per_sample", "counters")
WRITES = ("per_priority",)


def obstacle(shapes: Shapes, hindsight: Relabelling | None) -> str:
    """Why the kernels here can't do the replay's part of this step; empty if they can.

    Args:
        shapes: sizes of the step.
        hindsight: how its rows are relabelled, as `onegraph.trainer.hindsight.relabelling` says.
    """
    strategy = shapes.config.hindsight.strategy
    if (strategy != "none") is (hindsight is not None):
        return ""
    given = "none was" if hindsight is None else "one was"
    return (
        f"hindsight.strategy = {strategy!r} and the relabelling that was given do not go together:"
        f" {given} given; pass what onegraph.trainer.hindsight.relabelling makes of the config and"
        " its environment"
    )


def draw(
    shapes: Shapes, hindsight: Relabelling | None = None, *, follow_up: bool = True
) -> Fragment:
    """The draw, its weights, the counters, and what the learner draws once they have advanced.

    Args:
        shapes: sizes of the step.
        hindsight: how its rows are relabelled, if they are.
        follow_up: whether the learner's draws are among the ops; else they are to follow, and
            nothing but the passes that read them needs to wait for them.

    Raises:
        ValueError: there is an `obstacle`.
    """
    if found := obstacle(shapes, hindsight):
        raise ValueError(found)
    n = shapes.draws
    args: Args = {
        **RING_ARGS,
        "params": Ref("schedule_params"),
        "skip": Ref("skip"),
        **DRAWN_ARGS,
        "weights": Ref(BATCH.weights),
        "raw": Ref("raw_weight"),
        "largest": Ref("fused_largest_weight"),
        "barrier": Ref("fused_draw_barrier"),
        **draw_sizes(shapes),
    }
    if hindsight is None:
        each = sample_batch.rows_each(n, shapes.config.replay.n_step)
        kernel = "draw_batch"
        args |= {"each": each, "blocks": draw_batch.blocks_of(n, each)}
    else:
        kernel = "draw_relabelled"
        args |= relabelling_args(hindsight) | {"blocks": draw_batch.blocks_of(n, 1)}
    learner = Learner(shapes)
    own = (
        Buffer("raw_weight", (n,), "f64"),
        Buffer("fused_largest_weight", (2,), "f64", initial=lambda: np.zeros(2)),
        ticket("fused_draw_barrier"),
    )
    return Fragment(
        (Launch(kernel, args), *(learner.work["counters"] if follow_up else ())),
        (
            *own,
            *batch_buffers(shapes),
            *draw_buffers(shapes),
            *ring_buffers(shapes, "device"),
            *learner.buffers,
        ),
    )


def write_back(shapes: Shapes) -> Fragment:
    """New leaves from the batch's TD errors, and the nodes above them up to the root."""
    n, capacity = shapes.batch, shapes.capacity
    launch = Launch(
        "write_back",
        {
            "td": Ref("td"),
            **DRAWN_ROWS,
            "leaf": Ref("new_leaf"),
            **PRIORITY_ARGS,
            "barrier": Ref("fused_write_barrier"),
            "ticket": Ref("fused_write_ticket"),
            **priority_sizes(shapes),
            "form": int(writing.form_of(n, capacity)),
            "blocks": writing.blocks_of(n, capacity),
        },
    )
    return Fragment(
        (launch,),
        (
            Buffer("new_leaf", (n,), "f32"),
            ticket("fused_write_barrier"),
            ticket("fused_write_ticket"),
            *draw_buffers(shapes),
            *ring_buffers(shapes, "device"),
        ),
    )
