"""A whole batch under the goals of hindsight, its weights, and the step's counters in one launch.

`draw_batch` with `sample_relabelled` in the place of `sample_batch`, and with the same bits as that
and `advance_counters`. On the device a warp has a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.fused.draw_ending import finish_draw
from onegraph.kernels.replay.sample_relabelled import sample_relabelled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64


@kernel(
    per="block",
    work="blocks",
    block=128,
    resident=True,
    leaves="in f32",
    nodes="in f64",
    generation="in u32",
    ring_state="in f32",
    ring_next_state="in f32",
    ring_action="in i32",
    ring_reward="in f32",
    ring_flags="in u8",
    ring_episode="in i64",
    counters="inout i64",
    schedule="inout f64",
    params="in f64",
    skip="in i32",
    index="out i32",
    sampled_generation="out u32",
    state="out f32",
    next_state="out f32",
    action="out i32",
    ret="out f32",
    discount="out f32",
    weights="out f32",
    raw="out f64",
    largest="inout f64",
    barrier="inout u32",
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
    achieved="i32",
    goal="i32",
    goal_width="i32",
    strategy="i32",
    share="f64",
    blocks="i32",
)
def draw_relabelled(
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
    params: F64,
    skip: NDArray[np.int32],
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    state: F32,
    next_state: F32,
    action: NDArray[np.int32],
    ret: F32,
    discount: F32,
    weights: F32,
    raw: F64,
    largest: F64,
    barrier: NDArray[np.uint32],
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
    achieved: int,
    goal: int,
    goal_width: int,
    strategy: int,
    share: float,
    blocks: int,
) -> None:
    """The ring's columns [N, Sp] and [N] to `state`, `next_state` [n, Sp] and the rest [n].

    Columns of a state from `width` on are zeros. `blocks` (`draw_batch.blocks_of`) shapes the
    launch alone.
    """
    del blocks
    sample_relabelled(
        leaves,
        nodes,
        generation,
        ring_state,
        ring_next_state,
        ring_action,
        ring_reward,
        ring_flags,
        ring_episode,
        counters,
        schedule,
        index,
        sampled_generation,
        state,
        next_state,
        action,
        ret,
        discount,
        weights,
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
        1,
        achieved,
        goal,
        goal_width,
        strategy,
        share,
    )
    finish_draw(
        leaves,
        nodes,
        counters,
        schedule,
        params,
        skip,
        index[:n],
        raw,
        largest,
        barrier,
        leaf_count,
    )
