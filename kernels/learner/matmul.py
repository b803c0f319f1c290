"""Up to four independent float32 products in one launch, tile by tile, in one of three precisions.

``out_i = epilogue_i(op(a_i) @ op(b_i))`` with shapes, epilogues and rules as in `gemm` and
`gemm_group`; not both factors may be transposed. Three kernels have the same arguments:

- ``matmul_float32``: float32 products and sums.
- ``matmul_tf32``: the factors as TF32 (8 bits of exponent, 10 behind the point), products and sums
  on the tensor cores. These truncate their factors, so that `as_tf32` adds about half of what is
  left out first: within .67 of a unit in the last place, and exact where a factor is a TF32 number.
- ``matmul_tf32x3``: each factor as a sum of two TF32 numbers, and of the four products the three
  that matter: float32's accuracy from the tensor cores (Ootomo and Yokota 2022, *Recovering single
  precision accuracy from Tensor Cores*; NVIDIA's CUTLASS calls it 3xTF32). The tensor cores
  truncate where they add as well: sums on them end with each chunk of k's, and are added up in
  float32. Over 1,024 k's the relative error was 3.6e-7 on an H200, and 7.4e-6 without that;
  cuBLASLt's float32 had 5.7e-7.

GPUs older than compute capability 8.0 have no TF32: a device takes float32 there.

NaN and infinity: as IEEE arithmetic has them, but that an infinite factor may give NaN in
``matmul_tf32x3``, and in ``matmul_tf32`` a finite one within 2^-11 of the largest float32 infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.learner.gemm import gemm

#: Products that one launch can have.
MEMBERS = 4


@dataclass(frozen=True)
class Tile:
    """How a block computes `rows` x `cols` outputs.

    Attributes:
        shares: warps that share the k of a chunk between them.
        depth, stages: k's of a chunk, and chunks in flight.
        staged: chunks that shared memory holds where warpgroups compute the tile (Hopper's tensor
            cores, see matmul_warpgroup.cuh); 0: they never do.
    """

    rows: int
    cols: int
    shares: int
    depth: int
    stages: int
    staged: int = 0

    def count(self, m: int, n: int) -> int:
        """Tiles of an [m, n] output."""
        return -(-m // self.rows) * -(-n // self.cols)

    @property
    def least_bytes(self) -> int:
        """Dynamic shared memory of a block: the panels' stages, or the sums that follow them."""
        sums = self.shares * self.rows * (self.cols + 4) + max(256, self.cols)
        return 4 * max(self.stages * (_panel(self, self.rows) + _panel(self, self.cols)), sums)

    @property
    def shared_bytes(self) -> int:
        """The same where warpgroups compute the tile.

        The left factor then has two TF32 numbers an element, at a multiple of 1,024 bytes.
        """
        chunk = 2 * self.rows * self.depth + _panel(self, self.cols)
        return max(self.least_bytes, 4 * (256 + self.staged * chunk) if self.staged else 0)

    def bytes_within(self, limit: int) -> int:
        """What is asked for where a block can have `limit` bytes: all GPUs with warpgroups can."""
        return self.shared_bytes if self.shared_bytes <= limit else self.least_bytes


def _panel(tile: Tile, across: int) -> int:
    return max(across * (tile.depth + 4), tile.depth * (across + 8))


#: As matmul.cuh has them, by number.
TILES = (
    Tile(16, 8, 8, 64, 6),
    Tile(32, 32, 8, 64, 4),
    Tile(64, 64, 2, 32, 4, 4),
    Tile(128, 64, 2, 32, 3, 4),
    Tile(128, 128, 1, 32, 3, 4),
    Tile(64, 8, 2, 64, 4),
)

#: Blocks that keep a large GPU busy; a larger tile is taken where it leaves as many.
_ENOUGH = 96

#: Length of a sum from which two blocks share it, by tile. More blocks cost more than they save.
_SPLIT_FROM = (2048, 1024, 512, 1024, 1024)  # the sixth is never split

#: ``m, n, k`` of a product.
Sizes = tuple[int, int, int]

#: How products are computed; see the module's docstring.
Precision = Literal["float32", "tf32", "tf32x3"]

#: Multiply-adds from which a product is large, and terms from which its sum is long.
_LARGE, LONG_SUM = 1 << 30, 1 << 12

#: Bytes of shared memory that a block can have on large GPUs from Hopper on.
_LARGEST_SHARED = 227 * 1024

#: Blocks of the second tile from which these kernels are faster than `gemm`, which has smaller
#: ones; and elements of the left factor from which they are where the output is narrow.
_FROM_BLOCKS, _FROM_NARROW = 128, 1 << 18


def is_large(m: int, n: int, k: int, precision: Precision = "float32") -> bool:
    """Whether a product is cuBLASLt's, where that is installed, and so has a launch of its own.

    But those that are `onegraph.kernels.learner.matmul_long.is_long`. It shares long sums out over
    the GPU, and is faster at large products but those that it has no code for. On an H200, 2,048 x
    1,024 over 1,024 with bias and ReLU: cuBLASLt 99 us in float32 and 31 in TF32; these kernels 110
    and 29, and 46 by three TF32 products; but a gradient of weights of 1,024 x 1,024 over 2,048 in
    TF32 33 us by cuBLASLt, and 52 by these.
    """
    if k >= LONG_SUM:
        return True
    return precision != "tf32x3" and m * n * k >= _LARGE


def _splits(tile: int, k: int) -> tuple[int, ...]:
    return (1, 2) if k >= _SPLIT_FROM[tile] else (1,)


def plan(
    sizes: Sequence[Sizes], largest_cluster: int = 8, largest_shared: int = _LARGEST_SHARED
) -> list[tuple[int, int]]:
    """``(tile, split)`` of each product of one launch: the sizes alone decide, and so bits do.

    All have the tile that is the largest which leaves enough blocks; narrow outputs have their own
    two. Without clusters of blocks no sum is split, and no tile needs more shared memory than a
    block can have.
    """
    if largest_cluster < 2:
        return [(tile, 1) for tile, _ in plan(sizes, largest_shared=largest_shared)]
    narrow = [n <= TILES[0].cols for _, n, _ in sizes]
    tall = sum(TILES[5].count(m, n) for m, n, _ in sizes if n <= TILES[5].cols) >= _ENOUGH
    tall = tall and TILES[5].least_bytes <= largest_shared
    wide = [size for size, is_narrow in zip(sizes, narrow, strict=True) if not is_narrow]
    chosen = 1, max((_splits(1, k)[-1] for _, _, k in wide), default=1)
    for tile in (4, 3, 2):
        if TILES[tile].least_bytes > largest_shared:
            continue
        count = sum(TILES[tile].count(m, n) for m, n, _ in wide)
        shortest = min((k for _, _, k in wide), default=0)
        fits = [s for s in _splits(tile, shortest) if count * s >= _ENOUGH]
        if fits:
            chosen = tile, fits[0]
            break
    return [
        ((5, 1) if tall else (0, _splits(0, k)[-1])) if is_narrow else chosen
        for (_, _, k), is_narrow in zip(sizes, narrow, strict=True)
    ]


def is_wide(sizes: Sequence[Sizes], largest_shared: int = _LARGEST_SHARED) -> bool:
    """Whether products of these sizes in one launch are faster here than by `gemm`'s tiles.

    Never where a block can't have the shared memory that the small tiles here need.
    """
    if max(TILES[0].least_bytes, TILES[1].least_bytes) > largest_shared:
        return False
    blocks = sum(TILES[1].count(m, n) * _splits(1, k)[-1] for m, n, k in sizes)
    narrow = any(n <= TILES[0].cols and m * k >= _FROM_NARROW for m, n, k in sizes)
    return narrow or blocks >= _FROM_BLOCKS


def form(epilogue: int, tile: int, split: int, *, trans_a: bool, trans_b: bool) -> int:
    """A member's transposes (a bit each), epilogue and tile (three bits each), and split."""
    return int(trans_a) | int(trans_b) << 1 | epilogue << 2 | tile << 5 | split << 8


def turns_of(m: int, n: int, tile: int, split: int, cluster: int) -> int:
    """Turns that clusters of `cluster` blocks take at an [m, n] output."""
    return -(-TILES[tile].count(m, n) // (cluster // split)) if m > 0 else 0


_MEMBER = {
    "a": "in f32",
    "b": "in f32",
    "extra": "inout f32",
    "out": "out f32",
    "m": "i32",
    "n": "i32",
    "k": "i32",
    "form": "i32",
}

#: The kernels' parameters: each member's, then how many tiles they have, and shared memory.
PARAMS: dict[str, Any] = {
    **{f"{name}{i}": kind for i in range(MEMBERS) for name, kind in _MEMBER.items()},
    "turns": "i32",
    "cluster": "i32",
    "shared_bytes": "i32",
}


def as_tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """`x` as the tensor cores see it; NaN and infinity stay."""
    with np.errstate(all="ignore"):
        # Exact in float64, and rounded once: a fused multiply-add.
        moved = (x.astype(np.float64) * (1.0 + float.fromhex("0x1.555p-12"))).astype(np.float32)
    cut = (moved.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(moved), moved, cut)


def arguments(
    products: Sequence[tuple[Any, Any, Any, Any, Sizes, int, bool, bool]],
    largest_cluster: int = 8,
    largest_shared: int = _LARGEST_SHARED,
) -> dict[str, Any]:
    """The kernels' arguments for 1 to `MEMBERS` products.

    The longest sums come first, so that blocks with less to do fill up the end.

    Args:
        products: ``(a, b, extra, out, (m, n, k), epilogue, trans_a, trans_b)`` of each.
        largest_cluster: blocks that a cluster can have; 1: there are none.
        largest_shared: bytes of shared memory that a block can have.
    """
    products = sorted(products, key=lambda product: -product[4][2])
    plans = plan([sizes for _, _, _, _, sizes, *_ in products], largest_cluster, largest_shared)
    cluster = max(split for _, split in plans)
    args: dict[str, Any] = {}
    turns = 0
    for i in range(MEMBERS):
        inside = i < len(products)
        a, b, extra, out, (m, n, k), epilogue, trans_a, trans_b = products[i if inside else 0]
        tile, split = plans[i if inside else 0]
        turns += turns_of(m, n, tile, split, cluster) if inside else 0
        packed = form(epilogue, tile, split, trans_a=trans_a, trans_b=trans_b)
        args |= {
            f"a{i}": a,
            f"b{i}": b,
            f"extra{i}": a if extra is None else extra,  # not read without an epilogue
            f"out{i}": out,
            f"m{i}": m if inside else 0,
            f"n{i}": n,
            f"k{i}": k,
            f"form{i}": packed,
        }
    shared = max(TILES[tile].bytes_within(largest_shared) for tile, _ in plans)
    return {**args, "turns": turns, "cluster": cluster, "shared_bytes": shared}


def multiply(
    members: dict[str, Any], turns: int, cluster: int, shared_bytes: int, *, tf32: bool
) -> None:
    """What the twins do, with the kernels' arguments.

    Raises:
        ValueError: both factors transposed, another number of tiles, or too little memory.
    """
    count = 0
    for i in range(MEMBERS):
        given = {name: members[f"{name}{i}"] for name in _MEMBER}
        if given["m"] <= 0:
            continue
        packed = given.pop("form")
        number, split = packed >> 5 & 7, packed >> 8
        tile = TILES[number]
        trans_a, trans_b = packed & 1, packed >> 1 & 1
        if trans_a and trans_b:
            raise ValueError(f"member {i} has both factors transposed; leave that to gemm")
        if shared_bytes < tile.least_bytes:
            raise ValueError(f"tile {number} needs {tile.least_bytes} bytes of shared memory")
        if split not in (1, 2, 4, 8) or cluster % split:
            raise ValueError(f"a cluster of {cluster} blocks can't be split by {split}")
        m, n = given["m"], given["n"]
        count += turns_of(m, n, number, split, cluster)
        extra = given["extra"]
        if tf32 and packed >> 2 & 7 == 4:  # the sums are of what b is, not of its rounding
            extra[:n] = given["b"][: given["k"] * n].reshape(given["k"], n).sum(axis=0)
        if tf32:
            given |= {x: as_tf32(given[x]) for x in ("a", "b")}
        epilogue = 0 if tf32 and packed >> 2 & 7 == 4 else packed >> 2 & 7
        rows, cols = -(-m // 32), -(-n // 32)
        gemm(
            **given,
            trans_a=trans_a,
            trans_b=trans_b,
            epilogue=epilogue,
            tile_m=32,
            tiles_m=rows,
            tiles_n=cols,
        )
    if count != turns:
        raise ValueError(f"the members take {count} turns, and {turns} are asked for")
