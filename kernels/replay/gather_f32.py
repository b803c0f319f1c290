"""Gather float32 scalars: ``dst[j] = src[index[j]]``, 0 where an index lies outside [0, rows)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph.kernels.catalogue import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32


@kernel(
    sparse_reads={"src": "n"},
    work="n",
    src="in f32",
    index="in i32",
    dst="out f32",
    n="i32",
    rows="i64",
)
def gather_f32(src: F32, index: NDArray[np.int32], dst: F32, n: int, rows: int) -> None:
    """`src` [rows], `index` [n] to `dst` [n]."""
    taken = index[:n]
    inside = (taken >= 0) & (taken < rows)
    dst[:n] = 0
    dst[:n][inside] = src[taken[inside]]
