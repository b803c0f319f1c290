"""``out = epilogue(op(a) @ op(b))`` in float32, for layers too small for cuBLASLt.

Shapes: ``op(a)`` [M, K], ``op(b)`` [K, N], ``out`` [M, N], row-major; `a` is stored [K, M] and `b`
[N, K] where its ``trans`` flag is set. ``extra`` is the bias [N] of `BIAS` and `BIAS_RELU`, the
activation [M, N] of `RELU_GRAD`, and is not read by `NONE`. `BIAS_GRAD` writes to it [N] the sums
of ``b``'s columns: where b is the gradient of a layer's output, that is its bias's.

At these sizes a launch of cuBLASLt's costs more on the host than the arithmetic does on the GPU,
and its heuristic splits K over two kernels (see CUDA_FACTS). Here a matmul is one node of a graph,
and the order of summation is a function of K alone, so that any grid gives the same bits.

NaN and infinity: as IEEE arithmetic has them; a NaN passes the ReLU, so that it reaches the
finite check; ``RELU_GRAD`` gives zero where the activation is not greater than zero or is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel

NONE, BIAS, BIAS_RELU, RELU_GRAD, BIAS_GRAD = range(5)

#: Columns of a tile, as gemm.cuh has them.
TILE_N = 32

#: Tiles that keep a large GPU busy: with as many, more and smaller ones gain nothing.
_ENOUGH_TILES = 96


def tiling(m: int, n: int) -> tuple[int, int, int]:
    """``tile_m, tiles_m, tiles_n`` for an [m, n] output: small tiles while they are few."""
    tiles_n = -(-n // TILE_N)
    tile_m = next((t for t in (32, 16) if -(-m // t) * tiles_n >= _ENOUGH_TILES), 8)
    return tile_m, -(-m // tile_m), tiles_n


@kernel(
    per="block",
    work="tiles_m*tiles_n",
    block=256,
    fma=True,
    a="in f32",
    b="in f32",
    extra="inout f32",
    out="out f32",
    m="i32",
    n="i32",
    k="i32",
    trans_a="i32",
    trans_b="i32",
    epilogue="i32",
    tile_m="i32",
    tiles_m="i32",
    tiles_n="i32",
)
def gemm(
    a: NDArray[Any],
    b: NDArray[Any],
    extra: NDArray[Any],
    out: NDArray[Any],
    m: int,
    n: int,
    k: int,
    trans_a: int,
    trans_b: int,
    epilogue: int,
    tile_m: int,
    tiles_m: int,
    tiles_n: int,
) -> None:
    """See the module's docstring; ``tile_m`` is 8, 16 or 32 and the tiles cover the output."""
    if tile_m not in (8, 16, 32) or tiles_m * tile_m < m or tiles_n * TILE_N < n:
        raise ValueError(f"{tiles_m} x {tiles_n} tiles of {tile_m} x {TILE_N} leave out [{m}, {n}]")
    left = a[: m * k].reshape((k, m) if trans_a else (m, k))
    right = b[: k * n].reshape((n, k) if trans_b else (k, n))
    result = out[: m * n].reshape(m, n)
    with np.errstate(all="ignore"):  # a GPU does not warn of a NaN or an infinity either
        np.matmul(left.T if trans_a else left, right.T if trans_b else right, out=result)
        if epilogue == BIAS_GRAD:
            extra[:n] = right.sum(axis=1 if trans_b else 0)
    if epilogue in (BIAS, BIAS_RELU):
        result += extra[:n]
    if epilogue == BIAS_RELU:
        np.copyto(result, np.float32(0.0), where=result < 0.0)
    elif epilogue == RELU_GRAD:
        np.copyto(result, np.float32(0.0), where=~(extra[: m * n].reshape(m, n) > 0.0))
