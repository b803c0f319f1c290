"""Widen float rows: ``dst[j, :width] = src[j]``, columns from `width` on zero.

`src` is [n, width], `dst` [n, padded], width <= padded. Values are copied as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph.kernels.catalogue import kernel

if TYPE_CHECKING:
    from onegraph.kernels.replay.tree import F32


@kernel(
    work="n*padded",
    src="in f32",
    dst="out f32",
    n="i32",
    width="i32",
    padded="i32",
)
def pad_rows(src: F32, dst: F32, n: int, width: int, padded: int) -> None:
    """`src` [n, width] to `dst` [n, padded]."""
    out = dst[: n * padded].reshape(n, padded)
    columns = min(width, padded)
    out[:, columns:] = 0.0
    out[:, :columns] = src[: n * width].reshape(n, width)[:, :columns]
