"""Up to four independent small products in one launch: ``out_i = epilogue_i(op(a_i) @ op(b_i))``.

Each is what `gemm` computes, tile by tile by the same code, so that the bits are those of separate
launches; what is saved is a graph node for each further member, and the GPU that a small matrix
leaves idle. No member may read or write what another one writes.

``form_i`` packs the rest of a member's arguments (`form`). A member that is not there has ``m_i``
0, and any arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.gemm import gemm, tiling
from onegraph.kernels.learner.matmul import Precision, Sizes, is_large

#: Members that one launch can have.
MEMBERS = 4


def groups(sizes: Sequence[Sizes], precision: Precision = "float32") -> bool:
    """Whether products of these ``(m, n, k)`` go into one launch.

    A large one is cuBLASLt's, which takes one product a call, or `matmul_long`'s, which takes
    several of its own. Sizes and precision alone decide, so
    that a program says on any device what a GPU will do.
    """
    return 1 < len(sizes) <= MEMBERS and not any(is_large(*size, precision) for size in sizes)


def form(epilogue: int, tile_m: int, *, trans_a: bool, trans_b: bool) -> int:
    """A member's transposes (a bit each), epilogue (three bits) and tile height as one number."""
    return int(trans_a) | int(trans_b) << 1 | epilogue << 2 | tile_m << 5


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


@kernel(
    per="block",
    work="tiles",
    block=256,
    fma=True,
    **_MEMBER_PARAMS,
    tiles="i32",
)
def gemm_group(*, tiles: int, **members: Any) -> None:
    """See the module's docstring; ``tiles`` counts the tiles of all members.

    Raises:
        ValueError: `tiles` is another number.
    """
    given = [{name: members[f"{name}{i}"] for name in _MEMBER} for i in range(MEMBERS)]
    count = 0
    for member in given:
        if member["m"] > 0:
            packed = member.pop("form")
            tile_m = packed >> 5
            tiles_m, tiles_n = -(-member["m"] // tile_m), tiling(member["m"], member["n"])[2]
            count += tiles_m * tiles_n
            gemm(
                **member,
                trans_a=packed & 1,
                trans_b=packed >> 1 & 1,
                epilogue=packed >> 2 & 7,
                tile_m=tile_m,
                tiles_m=tiles_m,
                tiles_n=tiles_n,
            )
    if count != tiles:
        raise ValueError(f"the members have {count} tiles, and {tiles} are asked for")
