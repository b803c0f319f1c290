"""Scaled dot-product attention among the G tokens of a row, for each head by itself.

Vaswani et al. 2017 ("Attention is all you need", equation 1). A row has G tokens of width d; `qkv`
[rows, G, 3 d] holds each token's query, key and value side by side, and head h has columns h e to
(h + 1) e of each, e = d / heads (the layout of PyTorch's `MultiheadAttention`)::

    score[i, j] = (sum over c of q[i, c] k[j, c]) scale
    prob[i, j]  = exp(score[i, j] - max_j score[i, j]) / sum over j of the same
    out[i, c]   = sum over j of prob[i, j] v[j, c]

`out` is [rows, G, d], heads side by side; `prob` [rows, heads, G, G] is kept for the gradient.
`scale` is 1 / sqrt(e) in the paper. float32; every sum is taken in turn from its first term; the
exponential is computed in float64 and rounded once. A NaN or an infinite score above makes its
query's probabilities NaN; a score of -inf beside finite ones has probability 0. G is at most 64: a
lane of the warp keeps the largest scores of two queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import exp64
from onegraph.kernels.learner.row_sums import F

#: The most tokens of a row.
MAX_GROUPS = 64


def sum_in_turn(terms: NDArray[F]) -> NDArray[F]:
    """Sum over the last axis, from its first term on."""
    total = np.zeros(terms.shape[:-1], terms.dtype)
    for i in range(terms.shape[-1]):
        total = total + terms[..., i]
    return total


def multiply_in_turn(left: NDArray[F], right: NDArray[F]) -> NDArray[F]:
    """The matrix product [..., m, n] of [..., m, k] and [..., k, n], summed over k in turn."""
    total = np.zeros((*left.shape[:-1], right.shape[-1]), left.dtype)
    for i in range(left.shape[-1]):
        total = total + left[..., :, i, None] * right[..., None, i, :]
    return total


def split_heads(tokens: NDArray[F], heads: int) -> NDArray[F]:
    """[rows, G, d] as [rows, heads, G, d / heads]."""
    rows, groups, width = tokens.shape
    split: NDArray[F] = tokens.reshape(rows, groups, heads, width // heads).transpose(0, 2, 1, 3)
    return split


def join_heads(heads: NDArray[F]) -> NDArray[F]:
    """[rows, heads, G, e] as [rows, G, heads e]."""
    rows, count, groups, width = heads.shape
    joined: NDArray[F] = heads.transpose(0, 2, 1, 3).reshape(rows, groups, count * width)
    return joined


def attention(
    qkv: NDArray[F], heads: int, scale: float | np.floating[Any]
) -> tuple[NDArray[F], NDArray[F]]:
    """The output [rows, G, d] and probabilities of `qkv` [rows, G, 3d], in its dtype."""
    q, k, v = (split_heads(part, heads) for part in np.split(qkv, 3, axis=2))
    score = multiply_in_turn(q, np.swapaxes(k, 2, 3)) * qkv.dtype.type(scale)
    top = np.fmax.reduce(score, axis=3, keepdims=True, initial=-np.inf)
    weight: NDArray[F] = exp64(score - top).astype(qkv.dtype)
    prob: NDArray[F] = weight / sum_in_turn(weight)[..., None]
    return join_heads(multiply_in_turn(prob, v)), prob


@kernel(
    per="warp",
    work="rows*heads",
    block=64,
    qkv="in f32",
    out="out f32",
    prob="out f32",
    rows="i32",
    groups="i32",
    width="i32",
    heads="i32",
    scale="f32",
)
def attention_core(
    qkv: NDArray[np.float32],
    out: NDArray[np.float32],
    prob: NDArray[np.float32],
    *,
    rows: int,
    groups: int,
    width: int,
    heads: int,
    scale: np.float32,
) -> None:
    """Write `out` [rows, G, d] and `prob` [rows, heads, G, G]; `width` is d, which `heads` divides.

    Raises:
        ValueError: more groups than the kernel can take.
    """
    if groups > MAX_GROUPS:
        raise ValueError(f"{groups} tokens a row; at most {MAX_GROUPS}")
    n = rows * groups * width
    with np.errstate(all="ignore"):
        result, weights = attention(qkv[: 3 * n].reshape(rows, groups, 3 * width), heads, scale)
    out[:n] = result.reshape(-1)
    prob[: weights.size] = weights.reshape(-1)
