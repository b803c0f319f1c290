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
from onegraph.trainer.replay import BATCH, batch_buffers, draw_buffers, ring_buffers, ticket
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
    config, n = shapes.config, shapes.draws
    args: dict[str, Ref | int | float] = {
        "leaves": Ref("replay_leaves"),
        "nodes": Ref("replay_nodes"),
        "generation": Ref("replay_generation"),
        "ring_state": Ref("replay_state"),
        "ring_next_state": Ref("replay_next_state"),
        "ring_action": Ref("replay_action"),
        "ring_reward": Ref("replay_reward"),
        "ring_flags": Ref("replay_flags"),
        "counters": Ref("counters"),
        "schedule": Ref("schedule"),
        "params": Ref("schedule_params"),
        "skip": Ref("skip"),
        "index": Ref(BATCH.indices),
        "sampled_generation": Ref(BATCH.generations),
        "state": Ref(BATCH.states),
        "next_state": Ref(BATCH.next_states),
        "action": Ref(BATCH.actions),
        "ret": Ref(BATCH.rewards),
        "discount": Ref(BATCH.discounts),
        "weights": Ref(BATCH.weights),
        "raw": Ref("raw_weight"),
        "largest": Ref("fused_largest_weight"),
        "barrier": Ref("fused_draw_barrier"),
        "n": n,
        "leaf_count": shapes.capacity,
        "width": shapes.width,
        "padded": shapes.padded,
        "lanes": shapes.lanes,
        "slots": shapes.slots,
        "n_step": config.replay.n_step,
        "gamma": config.learn.gamma,
        "seed": config.seed,
        "strata": shapes.strata,
    }
    if hindsight is None:
        each = sample_batch.rows_each(n, config.replay.n_step)
        kernel = "draw_batch"
        args |= {"each": each, "blocks": draw_batch.blocks_of(n, each)}
    else:
        kernel = "draw_relabelled"
        args |= {
            "ring_episode": Ref("replay_episode"),
            "achieved": hindsight.goal.achieved,
            "goal": hindsight.goal.desired,
            "goal_width": hindsight.goal.width,
            "strategy": int(hindsight.strategy),
            "share": hindsight.share,
            "blocks": draw_batch.blocks_of(n, 1),
        }
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
    n, capacity, replay = shapes.batch, shapes.capacity, shapes.config.replay
    launch = Launch(
        "write_back",
        {
            "td": Ref("td"),
            "index": Ref(BATCH.indices),
            "sampled_generation": Ref(BATCH.generations),
            "generation": Ref("replay_generation"),
            "leaf": Ref("new_leaf"),
            "leaves": Ref("replay_leaves"),
            "nodes": Ref("replay_nodes"),
            "owner": Ref("replay_owner"),
            "max_leaf": Ref("replay_max_leaf"),
            "diagnostics": Ref("diagnostics"),
            "barrier": Ref("fused_write_barrier"),
            "ticket": Ref("fused_write_ticket"),
            "n": n,
            "leaf_count": capacity,
            "alpha": replay.alpha,
            "eps": replay.eps,
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
