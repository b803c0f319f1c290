"""Up to four products ``out_i = epilogue_i(a_i^T @ b_i)`` with long sums, in one launch.

Shapes: ``a_i`` [k, m], ``b_i`` [k, n], ``out_i`` [m, n], float32, row-major; ``extra_i`` and the
epilogues are `gemm`'s. With `BIAS_GRAD` that is the gradient of a layer's weights and bias over the
rows of a large batch: a small output, and thousands of terms a sum.

Such a sum is shared out over many blocks. A tile of the output has `shares` of them; each adds up
its run of k's and leaves the sums in its slot of ``scratch``. The last block of a group of shares
adds these up, and the last of the tile's groups the groups (there are about as many groups as
shares in each, so that nobody adds up many). ``tickets`` counts who is done, of each group and of
each tile: 0 before and after. Launches that may run at once need a scratch and tickets each.

The order of every sum depends on its product's sizes alone: not on the grid, nor on the other
products, nor on the GPU. Of a share of r k's, each of the block's warps adds every fourth run of
eight (in narrow tiles every eighth run of four) in order; then the warps, the shares of a group and
the groups are added in order. No sum of float32 numbers is longer than r / 4 + 4 and two times the
root of the number of shares, so the error is at most that many units of 2^-24 of the sum of
``|a b|``: for 8,192 k's of a 64 x 256 output 80 units, where a plain sum has 8,192.

NaN and infinity: as in `gemm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.gemm import gemm
from onegraph.kernels.learner.matmul import LONG_SUM, Precision, Sizes

#: Products that one launch can have.
MEMBERS = 4

#: Rows and columns of a tile, and columns of one of an output that is as narrow as that.
ROWS, COLUMNS, NARROW = 64, 64, 8

#: k's of a chunk, and chunks of a share at least.
DEPTH, _CHUNKS = 32, 4

#: Floats of scratch that a share has.
SLOT = ROWS * COLUMNS + COLUMNS

#: Blocks that one product is shared out over: two such products fill a large GPU, and one its
#: multiprocessors.
_BLOCKS = 128

#: Outputs up to which a long sum is shared out here, and multiply-adds up to which it is where the
#: tensor cores may take it instead.
_OUTPUTS, _FLOAT32 = 1 << 17, 1 << 28

#: Dynamic shared memory of a block: the warps' sums, those of columns, and a tile on its way out.
SHARED_BYTES = 4 * (4 * 32 * (COLUMNS + 4) + 256 + SLOT)


def is_long(
    m: int, n: int, k: int, *, trans_a: bool, trans_b: bool, precision: Precision = "float32"
) -> bool:
    """Whether a product is this kernel's: ``a^T b``, with a long sum and few outputs.

    cuBLASLt takes two launches for it, and sums of columns are a third.
    """
    if not trans_a or trans_b or k < LONG_SUM or not 0 < m * n <= _OUTPUTS:
        return False
    return precision != "tf32" or m * n * k <= _FLOAT32


def is_narrow(n: int) -> bool:
    """Whether the tiles of an output of `n` columns are narrow."""
    return n <= NARROW


def tiles(m: int, n: int) -> int:
    """Tiles of an [m, n] output."""
    return -(-m // ROWS) * -(-n // (NARROW if is_narrow(n) else COLUMNS))


def shares(m: int, n: int, k: int) -> int:
    """Blocks among which each sum of a product is shared out; none of them has nothing to do."""
    chunks = -(-k // DEPTH)
    wanted = max(1, min(_BLOCKS // max(1, tiles(m, n)), chunks // _CHUNKS))
    return max(1, -(-chunks // -(-chunks // wanted))) if chunks else 1


def slots(sizes: Sequence[Sizes]) -> int:
    """Slots of scratch, and tickets, of a launch of products: one for each share of several."""
    return sum(tiles(m, n) * count for m, n, k in sizes if (count := shares(m, n, k)) > 1)


def form(epilogue: int, parts: int, *, narrow: bool) -> int:
    """A member's epilogue (three bits), whether its tiles are narrow, and shares as one number."""
    return epilogue | int(narrow) << 3 | parts << 4


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

_MEMBER_PARAMS: dict[str, Any] = {
    f"{name}{i}": kind for i in range(MEMBERS) for name, kind in _MEMBER.items()
}


def arguments(products: Sequence[tuple[Any, Any, Any, Any, Sizes, int]]) -> dict[str, Any]:
    """The kernel's arguments for 1 to `MEMBERS` products, without ``scratch`` and ``tickets``.

    Args:
        products: ``(a, b, extra, out, (m, n, k), epilogue)`` of each.
    """
    args: dict[str, Any] = {}
    blocks = 0
    for i in range(MEMBERS):
        inside = i < len(products)
        a, b, extra, out, (m, n, k), epilogue = products[i if inside else 0]
        parts = shares(m, n, k)
        blocks += tiles(m, n) * parts if inside else 0
        args |= {
            f"a{i}": a,
            f"b{i}": b,
            f"extra{i}": a if extra is None else extra,  # not read without an epilogue
            f"out{i}": out,
            f"m{i}": m if inside else 0,
            f"n{i}": n,
            f"k{i}": k,
            f"form{i}": form(epilogue, parts, narrow=is_narrow(n)),
        }
    return {**args, "blocks": blocks, "shared_bytes": SHARED_BYTES}


@kernel(
    per="block",
    work="blocks",
    block=256,
    fma=True,
    shared_of="shared_bytes",
    **_MEMBER_PARAMS,
    blocks="i32",
    shared_bytes="i32",
    scratch="inout f32",
    tickets="inout u32",
)
def matmul_long(
    *,
    blocks: int,
    shared_bytes: int,
    scratch: NDArray[np.float32],
    tickets: NDArray[np.uint32],
    **members: Any,
) -> None:
    """See the module's docstring; ``blocks`` counts the shares of all tiles of all members.

    Raises:
        ValueError: another number of blocks, no shares, or too little of shared memory, scratch or
            tickets, or tickets that are not 0.
    """
    if shared_bytes < SHARED_BYTES:
        raise ValueError(f"a block needs {SHARED_BYTES} bytes of shared memory, got {shared_bytes}")
    given = [{name: members[f"{name}{i}"] for name in _MEMBER} for i in range(MEMBERS)]
    count = needed = 0
    for i, member in enumerate(given):
        packed, m, n = member.pop("form"), member["m"], member["n"]
        if m <= 0:
            continue
        parts, width = packed >> 4, NARROW if packed >> 3 & 1 else COLUMNS
        if parts < 1:
            raise ValueError(f"member {i} is shared out among {parts} blocks; give it 1 or more")
        mine = -(-m // ROWS) * -(-n // width) * parts
        count, needed = count + mine, needed + (mine if parts > 1 else 0)
        gemm(
            **member,
            trans_a=1,
            trans_b=0,
            epilogue=packed & 7,
            tile_m=32,
            tiles_m=-(-m // 32),
            tiles_n=-(-n // 32),
        )
    if count != blocks:
        raise ValueError(f"the members have {count} blocks, and {blocks} are asked for")
    if scratch.size < needed * SLOT or tickets.size < needed:
        raise ValueError(
            f"the members need {needed} slots of {SLOT} floats and as many tickets, got"
            f" {scratch.size} floats and {tickets.size} tickets"
        )
    if tickets[:needed].any():
        raise ValueError("a ticket is not 0: two launches at once share them, or one did not end")
