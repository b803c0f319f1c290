"""A whole batch in one launch, but for the scaling of its weights.

What `sample_batch` does, with the same bits, up to the importance weights, of which it leaves
``raw = (FILLED * leaf / total)^-beta`` (float64, `raw_weights`): dividing by the largest waits for
all rows, and `td_pass` does it where it reads the weights. On the device a block is one warp, and
has one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.importance_weights import unscaled
from onegraph.kernels.replay.sample_batch import sample_batch
from onegraph.kernels.replay.tree import node_count, path_leaves, path_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64


@kernel(
    per="warp",
    work="n",
    block=32,
    sparse_reads={
        "leaves": path_leaves,
        "nodes": path_nodes,
        "generation": "n",
        "ring_state": "n*width",
        "ring_next_state": "n*width",
        "ring_action": "n",
        "ring_reward": "n*n_step",
        "ring_flags": "n*n_step",
    },
    leaves="in f32",
    nodes="in f64",
    generation="in u32",
    ring_state="in f32",
    ring_next_state="in f32",
    ring_action="in i32",
    ring_reward="in f32",
    ring_flags="in u8",
    counters="in i64",
    schedule="in f64",
    index="out i32",
    sampled_generation="out u32",
    state="out f32",
    next_state="out f32",
    action="out i32",
    ret="out f32",
    discount="out f32",
    raw="out f64",
    n="i32",
    leaf_count="i64",
    width="i32",
    padded="i32",
    lanes="i32",
    slots="i32",
    n_step="i32",
    gamma="f64",
    seed="u64",
    strata="i32",
)
def draw_rows(
    leaves: F32,
    nodes: F64,
    generation: NDArray[np.uint32],
    ring_state: F32,
    ring_next_state: F32,
    ring_action: NDArray[np.int32],
    ring_reward: F32,
    ring_flags: NDArray[np.uint8],
    counters: I64,
    schedule: F64,
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    state: F32,
    next_state: F32,
    action: NDArray[np.int32],
    ret: F32,
    discount: F32,
    raw: F64,
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
) -> None:
    """The ring's columns [N, Sp] and [N] to `state`, `next_state` [n, Sp] and the rest [n].

    Columns of a state from `width` on are zeros.
    """
    sample_batch(
        leaves,
        nodes,
        generation,
        ring_state,
        ring_next_state,
        ring_action,
        ring_reward,
        ring_flags,
        counters,
        schedule,
        index,
        sampled_generation,
        state,
        next_state,
        action,
        ret,
        discount,
        np.empty(0, np.float32),
        np.zeros(1, np.uint32),
        n,
        leaf_count,
        width,
        padded,
        lanes,
        slots,
        n_step,
        gamma,
        seed,
        strata,
        0,
        1,
        n,
    )
    total = nodes[node_count(leaf_count) - 1 :]
    raw[:n] = unscaled(leaves, total, index[:n], counters, schedule, leaf_count)
