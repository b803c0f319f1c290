"""Weight gradients, their norm, Adam, the target, the priorities and the record, in one launch.

What follows `td_pass` in a learning step, for the same networks of two hidden layers::

    dW = in^T out, db = column sums of out  of (x, grad0), (hidden0, grad1), (hidden1, grad_head)
    grad_norm, adam_step, target_update     of all six tensors
    update_priorities                       where ``prioritise`` is not 0
    batch_stats, publish

`grad` gets the gradients before they are clipped. Elements of the parameters between the tensors
stay as they are. The sums over the batch are in its order, a bias's in eight parts of every 64
rows; the squares are added tile by tile of 32 x 32 parameters, so that the grid does not change the
numbers. As everywhere else a norm that is not finite skips the step. What is published of the
priorities is ``seen`` [8], the diagnostics as the step before left them, because another block
counts on in `diagnostics` at the same time.

On the device all blocks wait for one another once, between the gradients and their use: they must
run at once. ``barrier`` is the word of that wait (`grid_barrier.cuh`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import ADAM_GROUPS
from onegraph.kernels.learner.adam_step import adam_step
from onegraph.kernels.learner.batch_stats import Stat, batch_stats
from onegraph.kernels.learner.clip_factor import clip_factor
from onegraph.kernels.learner.publish import RECORD, publish
from onegraph.kernels.learner.target_update import target_update
from onegraph.kernels.replay.tree import changed_nodes, path_leaves, path_nodes
from onegraph.kernels.replay.update_priorities import update_priorities

#: Rows and columns of a tile of parameters.
TILE = 32


def tiles_of(inputs: int, width0: int, width1: int, stride: int) -> int:
    """Tiles of the three matrices, which is how many sums of squares there are."""
    shapes = ((inputs, width0), (width0, width1), (width1, stride))
    return sum(-(-rows // TILE) * -(-columns // TILE) for rows, columns in shapes)


def blocks_of(inputs: int, width0: int, width1: int, stride: int) -> int:
    """One block for what is published, one for the priorities, and one for each tile."""
    return 2 + tiles_of(inputs, width0, width1, stride)


@kernel(
    per="block",
    work="blocks",
    resident=True,
    sparse_reads={
        "leaves": path_leaves,
        "nodes": path_nodes,
        "generation": "n",
        "owner": 0,
        "history": 0,
    },
    sparse_writes={"leaves": "n", "nodes": changed_nodes, "owner": 0, "history": RECORD},
    state="in f32",
    hidden0="in f32",
    hidden1="in f32",
    grad0="in f32",
    grad1="in f32",
    grad_head="in f32",
    theta="inout f32",
    m="inout f32",
    v="inout f32",
    target="inout f32",
    grad="inout f32",
    partial="out f64",
    barrier="inout u32",
    clip="out f32",
    skip="out i32",
    counters="in i64",
    schedule="in f64",
    decay="in f32",
    td="in f32",
    loss="in f32",
    q_taken="in f32",
    index="in i32",
    sampled_generation="in u32",
    generation="in u32",
    leaves="inout f32",
    nodes="inout f64",
    owner="inout i32",
    max_leaf="inout f32",
    diagnostics="inout i64",
    seen="in i64",
    record="inout f64",
    history="inout f64",
    n="i32",
    inputs="i32",
    width0="i32",
    width1="i32",
    stride="i32",
    weight0="i32",
    bias0="i32",
    weight1="i32",
    bias1="i32",
    weight2="i32",
    bias2="i32",
    blocks="i32",
    max_norm="f64",
    beta1="f32",
    beta2="f32",
    eps="f32",
    every="i64",
    ring="i32",
    prioritise="i32",
    leaf_count="i64",
    alpha="f64",
    leaf_eps="f64",
)
def apply_step(
    state: NDArray[np.float32],
    hidden0: NDArray[np.float32],
    hidden1: NDArray[np.float32],
    grad0: NDArray[np.float32],
    grad1: NDArray[np.float32],
    grad_head: NDArray[np.float32],
    theta: NDArray[np.float32],
    m: NDArray[np.float32],
    v: NDArray[np.float32],
    target: NDArray[np.float32],
    grad: NDArray[np.float32],
    partial: NDArray[np.float64],
    barrier: NDArray[np.uint32],
    clip: NDArray[np.float32],
    skip: NDArray[np.int32],
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    decay: NDArray[np.float32],
    td: NDArray[np.float32],
    loss: NDArray[np.float32],
    q_taken: NDArray[np.float32],
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    generation: NDArray[np.uint32],
    leaves: NDArray[np.float32],
    nodes: NDArray[np.float64],
    owner: NDArray[np.int32],
    max_leaf: NDArray[np.float32],
    diagnostics: NDArray[np.int64],
    seen: NDArray[np.int64],
    record: NDArray[np.float64],
    history: NDArray[np.float64],
    n: int,
    inputs: int,
    width0: int,
    width1: int,
    stride: int,
    weight0: int,
    bias0: int,
    weight1: int,
    bias1: int,
    weight2: int,
    bias2: int,
    blocks: int,
    max_norm: np.float64,
    beta1: np.float32,
    beta2: np.float32,
    eps: np.float32,
    every: int,
    ring: int,
    prioritise: int,
    leaf_count: int,
    alpha: float,
    leaf_eps: float,
) -> None:
    """One step of the parameters by the activations and their gradients; see the module's text.

    ``blocks`` (`blocks_of`) shapes the launch alone; the top bit of `barrier` flips.
    """
    del blocks
    barrier[0] ^= np.uint32(1 << 31)
    layers = (
        (state, grad0, inputs, width0, weight0, bias0),
        (hidden0, grad1, width0, width1, weight1, bias1),
        (hidden1, grad_head, width1, stride, weight2, bias2),
    )
    squares: list[float] = []
    with np.errstate(all="ignore"):
        for x, out, fan_in, fan_out, weight, bias in layers:
            given = x[: n * fan_in].reshape(n, fan_in)
            slope = out[: n * fan_out].reshape(n, fan_out)
            d_weight, d_bias = given.T @ slope, slope.sum(axis=0, dtype=np.float32)
            grad[weight : weight + d_weight.size] = d_weight.reshape(-1)
            grad[bias : bias + fan_out] = d_bias
            for row in range(0, fan_in, TILE):
                for column in range(0, fan_out, TILE):
                    here = d_weight[row : row + TILE, column : column + TILE].astype(np.float64)
                    total = float(np.sum(here * here))
                    if row == 0:
                        here = d_bias[column : column + TILE].astype(np.float64)
                        total += float(np.sum(here * here))
                    squares.append(total)
    parts = len(squares)
    partial[:parts] = squares
    clip_factor(partial, clip, skip, parts=parts, max_norm=max_norm)

    for _, _, fan_in, fan_out, weight, bias in layers:
        for start, size in ((weight, fan_in * fan_out), (bias, fan_out)):
            its = slice(start, start + size)
            ends = np.full(ADAM_GROUPS, size, np.int64)
            adam_step(
                theta[its],
                m[its],
                v[its],
                grad[its],
                clip,
                schedule,
                skip,
                ends,
                decay,
                n=size,
                beta1=beta1,
                beta2=beta2,
                eps=eps,
            )
            target_update(target[its], theta[its], schedule, counters, skip, n=size, every=every)
    stats = np.empty(len(Stat))
    batch_stats(loss, td, q_taken, stats, n=n)
    publish(stats, clip, counters, schedule, seen, skip, record, history, ring=ring)
    if prioritise:
        update_priorities(
            td,
            index,
            sampled_generation,
            generation,
            leaves,
            nodes,
            owner,
            max_leaf,
            diagnostics,
            n,
            leaf_count,
            alpha,
            leaf_eps,
        )
