"""The parameters that kernels which draw a whole batch have in common, each run of them said once.

`sample_batch` and `sample_relabelled` draw it, and so do `draw_batch`, `draw_relabelled` and
`draw_rows` of `onegraph.kernels.fused`. Each declares these runs in the order of its C signature,
and between them what it has of its own.
"""

from __future__ import annotations

from typing import Any

from onegraph.kernels.replay.tree import path_leaves, path_nodes

#: The tree over the leaves [N], and the ring's columns [N, Sp] and [N].
RING: dict[str, Any] = {
    "leaves": "in f32",
    "nodes": "in f64",
    "generation": "in u32",
    "ring_state": "in f32",
    "ring_next_state": "in f32",
    "ring_action": "in i32",
    "ring_reward": "in f32",
    "ring_flags": "in u8",
}

#: The batch: which rows are drawn, and what they hold, [n, Sp] and [n].
DRAWN: dict[str, Any] = {
    "index": "out i32",
    "sampled_generation": "out u32",
    "state": "out f32",
    "next_state": "out f32",
    "action": "out i32",
    "ret": "out f32",
    "discount": "out f32",
}

#: Sizes of the batch and the ring, and how returns are summed and rows drawn.
SIZES: dict[str, Any] = {
    "n": "i32",
    "leaf_count": "i64",
    "width": "i32",
    "padded": "i32",
    "lanes": "i32",
    "slots": "i32",
    "n_step": "i32",
    "gamma": "f64",
    "seed": "u64",
    "strata": "i32",
}

#: How hindsight gives rows another goal (`hindsight_assemble`).
RELABELLING: dict[str, Any] = {
    "achieved": "i32",
    "goal": "i32",
    "goal_width": "i32",
    "strategy": "i32",
    "share": "f64",
}

#: What a kernel that leaves the counters to others reads.
COUNTERS: dict[str, Any] = {"counters": "in i64", "schedule": "in f64"}

#: What one reads and writes that ends the draw (`onegraph.kernels.fused.draw_ending`).
ADVANCED_COUNTERS: dict[str, Any] = {
    "counters": "inout i64",
    "schedule": "inout f64",
    "params": "in f64",
    "skip": "in i32",
}

#: Of the ring, what the drawn rows need.
SPARSE_READS: dict[str, Any] = {
    "leaves": path_leaves,
    "nodes": path_nodes,
    "generation": "n",
    "ring_state": "n*width",
    "ring_next_state": "n*width",
    "ring_action": "n",
    "ring_reward": "n*n_step",
    "ring_flags": "n*n_step",
}
