"""The gradient of `attention_core` in queries, keys and values, from the probabilities it kept.

With g [rows, G, d] the gradient in its output, and all of one row and head::

    grad_v[j, c] = sum over i of prob[i, j] g[i, c]
    of_prob[i, j] = sum over c of g[i, c] v[j, c]
    mix[i]       = sum over j of prob[i, j] of_prob[i, j]
    slope[i, j]  = (prob[i, j] (of_prob[i, j] - mix[i])) scale
    grad_q[i, c] = sum over j of slope[i, j] k[j, c]
    grad_k[j, c] = sum over i of slope[i, j] q[i, c]

`grad_qkv` [rows, G, 3 d] has the layout of `qkv`. float32; every sum is taken in turn from its
first term. NaN and infinity reach what depends on them within their row and head, no further.
`slope` [rows, heads, G, G] is scratch that is written with the above.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.attention_core import (
    join_heads,
    multiply_in_turn,
    split_heads,
    sum_in_turn,
)
from onegraph.kernels.learner.row_sums import F


def attention_gradient(
    qkv: NDArray[F],
    prob: NDArray[F],
    grad_out: NDArray[F],
    heads: int,
    scale: float | np.floating[Any],
) -> tuple[NDArray[F], NDArray[F]]:
    """``grad_qkv`` [rows, G, 3d] and ``slope`` [rows, heads, G, G], in the dtype of `qkv`."""
    q, k, v = (split_heads(part, heads) for part in np.split(qkv, 3, axis=2))
    g = split_heads(grad_out, heads)
    of_prob = multiply_in_turn(g, np.swapaxes(v, 2, 3))
    mix = sum_in_turn(prob * of_prob)[..., None]
    slope: NDArray[F] = (prob * (of_prob - mix)) * qkv.dtype.type(scale)
    parts = (
        multiply_in_turn(slope, k),
        multiply_in_turn(np.swapaxes(slope, 2, 3), q),
        multiply_in_turn(np.swapaxes(prob, 2, 3), g),
    )
    return np.concatenate([join_heads(part) for part in parts], axis=2), slope


@kernel(
    per="warp",
    work="rows*heads",
    block=64,
    qkv="in f32",
    prob="in f32",
    grad_out="in f32",
    slope="out f32",
    grad_qkv="out f32",
    rows="i32",
    groups="i32",
    width="i32",
    heads="i32",
    scale="f32",
)
def attention_core_grad(
    qkv: NDArray[np.float32],
    prob: NDArray[np.float32],
    grad_out: NDArray[np.float32],
    slope: NDArray[np.float32],
    grad_qkv: NDArray[np.float32],
    *,
    rows: int,
    groups: int,
    width: int,
    heads: int,
    scale: np.float32,
) -> None:
    """Write `grad_qkv` [rows, G, 3d] and `slope` [rows, heads, G, G]."""
    n, pairs = rows * groups * width, rows * heads * groups * groups
    with np.errstate(all="ignore"):
        result, slopes = attention_gradient(
            qkv[: 3 * n].reshape(rows, groups, 3 * width),
            prob[:pairs].reshape(rows, heads, groups, groups),
            grad_out[:n].reshape(rows, groups, width),
            heads,
            scale,
        )
    grad_qkv[: 3 * n] = result.reshape(-1)
    slope[:pairs] = slopes.reshape(-1)
