"""Gather int32 scalars: ``dst[j] = src[index[j]]``, 0 where an index lies outside [0, rows)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph.kernels.catalogue import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@kernel(
    sparse_reads={"src": "n"},
    work="n",
    src="in i32",
    index="in i32",
    dst="out i32",
    n="i32",
    rows="i64",
)
def gather_i32(
    src: NDArray[np.int32], index: NDArray[np.int32], dst: NDArray[np.int32], n: int, rows: int
) -> None:
    """`src` [rows], `index` [n] to `dst` [n]."""
    taken = index[:n]
    inside = (taken >= 0) & (taken < rows)
    dst[:n] = 0
    dst[:n][inside] = src[taken[inside]]
