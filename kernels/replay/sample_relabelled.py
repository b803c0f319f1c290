"""A whole batch in one launch, under the goals that hindsight gives its rows.

`sample_batch` with `hindsight_assemble` in the place of `nstep_assemble` and `gather_relabelled` in
that of `gather_rows`, with the same bits as those kernels one after the other. A warp that takes
its goal from another position of the batch makes that position's draw again.

``ticket`` counts the blocks that are done: 0 before and after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.draw_params import (
    COUNTERS,
    DRAWN,
    RELABELLING,
    RING,
    SIZES,
    SPARSE_READS,
)
from onegraph.kernels.replay.gather_i32 import gather_i32
from onegraph.kernels.replay.gather_relabelled import gather_relabelled
from onegraph.kernels.replay.hindsight_assemble import hindsight_assemble
from onegraph.kernels.replay.importance_weights import importance_weights
from onegraph.kernels.replay.philox_thresholds import philox_thresholds
from onegraph.kernels.replay.tree import node_count
from onegraph.kernels.replay.tree_descend import tree_descend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64


@kernel(
    per="warp",
    work="n",
    sparse_reads={**SPARSE_READS, "ring_episode": "n"},
    **RING,
    ring_episode="in i64",
    **COUNTERS,
    **DRAWN,
    weights="out f32",
    ticket="inout u32",
    **SIZES,
    weigh="i32",
    **RELABELLING,
)
def sample_relabelled(
    leaves: F32,
    nodes: F64,
    generation: NDArray[np.uint32],
    ring_state: F32,
    ring_next_state: F32,
    ring_action: NDArray[np.int32],
    ring_reward: F32,
    ring_flags: NDArray[np.uint8],
    ring_episode: I64,
    counters: I64,
    schedule: F64,
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    state: F32,
    next_state: F32,
    action: NDArray[np.int32],
    ret: F32,
    discount: F32,
    weights: F32,
    ticket: NDArray[np.uint32],
    n: int,
    leaf_count: int,
    width: int,
    padded: int,
    lanes: int,
    slots: int,
    n_step: int,
    gamma: float,
    seed: int,
    strata: int,
    weigh: int,
    achieved: int,
    goal: int,
    goal_width: int,
    strategy: int,
    share: float,
) -> None:
    """The ring's columns [N, Sp] and [N] to `state`, `next_state` [n, Sp] and the rest [n].

    Columns of a state from `width` on are zeros.
    """
    thresholds = np.empty(n)
    last, donor = np.empty(n, np.int32), np.empty(n, np.int32)
    root = nodes[node_count(leaf_count) - 1 :]
    philox_thresholds(root, counters, thresholds, n, seed, strata)
    tree_descend(leaves, nodes, thresholds, generation, index, sampled_generation, n, leaf_count)
    hindsight_assemble(
        index,
        ring_reward,
        ring_flags,
        ring_episode,
        ring_next_state,
        counters,
        last,
        donor,
        ret,
        discount,
        n,
        lanes,
        slots,
        padded,
        n_step,
        gamma,
        achieved,
        goal_width,
        strategy,
        share,
        seed,
    )
    for source, rows, target in (
        (ring_state, index, state),
        (ring_next_state, last, next_state),
    ):
        gather_relabelled(
            source,
            ring_next_state,
            rows,
            donor,
            target,
            n,
            width,
            padded,
            padded,
            achieved,
            goal,
            goal_width,
            leaf_count,
        )
    gather_i32(ring_action, index, action, n, leaf_count)
    if weigh:
        importance_weights(leaves, root, index, counters, schedule, weights, n, leaf_count)
    ticket[0] = 0
