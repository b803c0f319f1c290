"""From a drawn batch to TD errors and the gradients of the activations, in one launch.

For a network of two hidden layers with ReLU and one head (plain or dueling)::

    a0 = relu(x W0 + b0), a1 = relu(a0 W1 + b1), head = a1 W2 + b2

through the online network on s_tm1 and s_t and the target network on s_t, the importance weights
scaled by the largest (`importance_weights`), `dqn_loss`, and back to the gradients of what W2, W1
and W0 put out: ``grad_head`` [n, A + d], ``grad1`` [n, H1] and ``grad0`` [n, H0], zero where the
ReLU was. ``hidden0`` and ``hidden1`` are the online activations on s_tm1. The weights of the
parameters are `apply_step`'s to update. Beside it, and nothing here reads them, the counters and
schedules of a learning step advance (`advance_counters`), and ``seen`` gets what ``diagnostics``
say before the step's priorities, which is what `apply_step` publishes.

A cluster of ``cluster`` blocks takes ``rows`` rows at a time, and each of its blocks has a share of
every layer's columns, for which it holds the matrices in shared memory. The order of a sum depends
on its length, and where the blocks add up their parts (the head's values, the first layer's
gradient) on ``cluster``; ``rows`` and the grid do not change the numbers. NaN and infinity: as IEEE
arithmetic has them; see `dqn_loss` for what is defined of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import DIAGNOSTICS
from onegraph.kernels.learner.advance_counters import advance_counters
from onegraph.kernels.learner.dqn_loss import dqn_loss
from onegraph.kernels.replay.importance_weights import scaled

#: Rows that a cluster takes at a time; the kernel has code for each.
ROWS = (3, 5, 8)

#: Warps that share a sum, and floats behind a row of a matrix in shared memory.
_WARPS, _PAD = 8, 4

#: Bytes of shared memory that the kernel has beside the dynamic ones.
STATIC_BYTES = 32


@dataclass(frozen=True)
class TwoLayers:
    """Widths of the network: padded inputs, the hidden layers, and a head's columns."""

    inputs: int
    width0: int
    width1: int
    stride: int


def shared_bytes(net: TwoLayers, rows: int, cluster: int) -> int:
    """Bytes of shared memory of a block, as td_pass.cu lays it out."""

    def up(n: int) -> int:
        return -(-n // 4) * 4

    slices = [up(-(-width // cluster)) for width in (net.width0, net.width1)]
    floats = sum(
        2 * up(k * (columns + _PAD)) + 2 * columns
        for k, columns in zip((net.inputs, net.width0), slices, strict=True)
    )
    floats += 2 * up(slices[1] * net.stride) + 2 * up(net.stride)
    floats += 3 * rows * (net.inputs + _PAD + net.width0 + _PAD + slices[1])
    floats += _WARPS * 3 * rows * max(slices)
    floats += up(cluster * 3 * rows * net.stride) + up(3 * rows * net.stride)
    floats += up(rows * net.stride) + rows * slices[1] + cluster * rows * slices[0]
    return 4 * floats


def takes(net: TwoLayers) -> bool:
    """Whether the kernel has code for these widths: it copies four floats at a time."""
    return net.inputs % 4 == 0 and net.width0 % 4 == 0 and net.width1 % 4 == 0


def fits(net: TwoLayers, rows: int, cluster: int, limit: int) -> bool:
    """Whether a block needs at most `limit` bytes of shared memory."""
    return shared_bytes(net, rows, cluster) + STATIC_BYTES <= limit


@kernel(
    per="cluster",
    work="tiles",
    block=288,
    cluster_of="cluster",
    shared_of="shared_bytes",
    early=True,
    state="in f32",
    next_state="in f32",
    theta="in f32",
    target="in f32",
    action="in i32",
    ret="in f32",
    discount="in f32",
    raw="in f64",
    counters="inout i64",
    schedule="inout f64",
    params="in f64",
    skip="in i32",
    diagnostics="in i64",
    seen="out i64",
    weights="out f32",
    td="out f32",
    loss="out f32",
    q_taken="out f32",
    hidden0="out f32",
    hidden1="out f32",
    grad_head="out f32",
    grad1="out f32",
    grad0="out f32",
    n="i32",
    inputs="i32",
    width0="i32",
    width1="i32",
    actions="i32",
    dueling="i32",
    double_q="i32",
    mse="i32",
    delta="f32",
    weight0="i32",
    bias0="i32",
    weight1="i32",
    bias1="i32",
    weight2="i32",
    bias2="i32",
    rows="i32",
    tiles="i32",
    cluster="i32",
    shared_bytes="i32",
)
def td_pass(
    state: NDArray[np.float32],
    next_state: NDArray[np.float32],
    theta: NDArray[np.float32],
    target: NDArray[np.float32],
    action: NDArray[np.int32],
    ret: NDArray[np.float32],
    discount: NDArray[np.float32],
    raw: NDArray[np.float64],
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    params: NDArray[np.float64],
    skip: NDArray[np.int32],
    diagnostics: NDArray[np.int64],
    seen: NDArray[np.int64],
    weights: NDArray[np.float32],
    td: NDArray[np.float32],
    loss: NDArray[np.float32],
    q_taken: NDArray[np.float32],
    hidden0: NDArray[np.float32],
    hidden1: NDArray[np.float32],
    grad_head: NDArray[np.float32],
    grad1: NDArray[np.float32],
    grad0: NDArray[np.float32],
    n: int,
    inputs: int,
    width0: int,
    width1: int,
    actions: int,
    dueling: int,
    double_q: int,
    mse: int,
    delta: np.float32,
    weight0: int,
    bias0: int,
    weight1: int,
    bias1: int,
    weight2: int,
    bias2: int,
    rows: int,
    tiles: int,
    cluster: int,
    shared_bytes: int,
) -> None:
    """`state`, `next_state` [n, inputs] and the flat parameters to what the module's text names.

    ``weight0`` to ``bias2`` are the tensors' offsets in `theta` and `target`. ``rows`` (one of
    `ROWS`), ``tiles`` (of so many rows, which cover the batch), ``cluster`` and ``shared_bytes``
    (`shared_bytes`) shape the launch alone.

    Raises:
        ValueError: tiles that leave rows out, or widths or offsets that are no multiples of four.
    """
    del cluster, shared_bytes
    if inputs % 4 or width0 % 4 or width1 % 4:
        raise ValueError(f"widths {inputs}, {width0} and {width1} are not all multiples of 4")
    if any(offset % 4 for offset in (weight0, bias0, weight1, bias1)):
        raise ValueError(
            f"the layers' tensors begin at {weight0}, {bias0}, {weight1} and {bias1}, not all of"
            " which are multiples of 4: the kernel copies four floats at a time"
        )
    if rows not in ROWS or tiles * rows < n:
        raise ValueError(f"{tiles} tiles of {rows} rows leave out some of {n}")
    stride = actions + (1 if dueling else 0)
    places = ((weight0, bias0, inputs, width0), (weight1, bias1, width0, width1))

    def passed(x: NDArray[np.float32], of: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        found = [x]
        for weight, bias, k, width in places:
            y = found[-1] @ of[weight : weight + k * width].reshape(k, width)
            y += of[bias : bias + width]
            np.copyto(y, np.float32(0.0), where=y < 0.0)
            found.append(y)
        head = of[weight2 : weight2 + width1 * stride].reshape(width1, stride)
        found.append(found[-1] @ head + of[bias2 : bias2 + stride])
        return found

    here, there = (s[: n * inputs].reshape(n, inputs) for s in (state, next_state))
    with np.errstate(all="ignore"):  # a GPU does not warn of a NaN or an infinity either
        _, a0, a1, online = passed(here, theta)
        select, bootstrap = passed(there, theta)[-1], passed(there, target)[-1]
        largest = float(np.fmax.reduce(raw[:n], initial=0.0))
        weights[:n] = scaled(raw[:n], largest)
        gradient = np.zeros(n * stride, np.float32)
        dqn_loss(
            np.ascontiguousarray(online).reshape(-1),
            np.ascontiguousarray(select).reshape(-1),
            np.ascontiguousarray(bootstrap).reshape(-1),
            action,
            ret,
            discount,
            weights,
            td,
            loss,
            q_taken,
            gradient,
            n=n,
            actions=actions,
            dueling=dueling,
            double_q=double_q,
            mse=mse,
            delta=delta,
        )
        d_head = gradient.reshape(n, stride)
        d1 = d_head @ theta[weight2 : weight2 + width1 * stride].reshape(width1, stride).T
        np.copyto(d1, np.float32(0.0), where=~(a1 > 0.0))
        d0 = d1 @ theta[weight1 : weight1 + width0 * width1].reshape(width0, width1).T
        np.copyto(d0, np.float32(0.0), where=~(a0 > 0.0))
    grad_head[: n * stride] = gradient
    for out, values in ((hidden0, a0), (hidden1, a1), (grad1, d1), (grad0, d0)):
        out[: values.size] = values.reshape(-1)
    seen[:DIAGNOSTICS] = diagnostics[:DIAGNOSTICS]
    advance_counters(counters, schedule, params, skip, program=0, lanes=1, slots=1)
