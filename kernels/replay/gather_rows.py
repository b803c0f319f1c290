"""Gather float rows into a padded buffer: ``dst[j, :width] = src[index[j], :width]``.

`src` is [rows, src_stride], `dst` [n, dst_stride]. Columns from `width` on are zero, and so is a
whole row whose index lies outside [0, rows). Values are copied as they are, NaN included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph.kernels.catalogue import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32


@kernel(
    work="n*dst_stride",
    sparse_reads={"src": "n*width"},
    src="in f32",
    index="in i32",
    dst="out f32",
    n="i32",
    width="i32",
    src_stride="i32",
    dst_stride="i32",
    rows="i64",
)
def gather_rows(
    src: F32,
    index: NDArray[np.int32],
    dst: F32,
    n: int,
    width: int,
    src_stride: int,
    dst_stride: int,
    rows: int,
) -> None:
    """`src` [rows, src_stride], `index` [n] to `dst` [n, dst_stride]."""
    out = dst[: n * dst_stride].reshape(n, dst_stride)
    taken = index[:n]
    inside = (taken >= 0) & (taken < rows)
    columns = min(width, dst_stride, src_stride)
    source = src[: rows * src_stride].reshape(rows, src_stride)
    out[:] = 0.0
    out[inside, :columns] = source[taken[inside], :columns]
