"""A batch's new priorities into the tree, from the TD errors up to the root, in one launch.

What `claim_priorities`, `write_priorities` and `refresh_drawn` do one after the other, and
`update_priorities` with one block, with the same bits. On the device all blocks run at once. They
wait for one another when every position has claimed its slot; then, by `Form`:

- `Form.TOUCHED`, for a batch of fewer rows than there are groups (`refresh_drawn` says what that
  is): a block a position recomputes the group above its leaf, with the leaves that the owners of
  the slots will have. The last block writes the leaves.
- `Form.WHOLE`: the same for each group once, and its block writes its leaves.
- `Form.APART`, where the groups are so many that to read them whole takes longer than to wait twice
  more: the leaves are written, then the touched nodes of level 1 recomputed, then the two levels
  above.

The last block to finish recomputes what is left, the few nodes near the root. Any form is right at
any size. ``barrier`` and ``ticket`` are 0 before the first launch, and left for the next: the top
bit of ``barrier`` flips.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.claim_priorities import claim_priorities
from onegraph.kernels.replay.tree import group_count, node_count, refresh
from onegraph.kernels.replay.write_priorities import write_priorities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64

#: Threads of a block, each of which claims a position's slot.
THREADS = 256

#: Blocks that are asked for at most: four for each multiprocessor of a large GPU.
MOST_BLOCKS = 528

#: Groups of 4 KB of leaves, and as much of owners, above which `Form.APART` reads less.
MOST_GROUPS = 2048


class Form(IntEnum):
    """How the two lower levels are recomputed."""

    TOUCHED = 0
    WHOLE = 1
    APART = 2


def form_of(n: int, leaf_count: int) -> Form:
    """The form for a batch of `n` positions."""
    groups = group_count(leaf_count, 1)
    if min(n, groups) > MOST_GROUPS:
        return Form.APART
    return Form.WHOLE if groups <= n else Form.TOUCHED


def blocks_of(n: int, leaf_count: int) -> int:
    """Blocks to ask for: one for each group or position that has a block's work, within reason."""
    groups = min(n, group_count(leaf_count, 1))
    return max(1, min(MOST_BLOCKS, max(groups, -(-n // THREADS))))


@kernel(
    per="block",
    work="blocks",
    block=THREADS,
    resident=True,
    td="in f32",
    index="in i32",
    sampled_generation="in u32",
    generation="in u32",
    leaf="out f32",
    leaves="inout f32",
    nodes="inout f64",
    owner="inout i32",
    max_leaf="inout f32",
    diagnostics="inout i64",
    barrier="inout u32",
    ticket="inout u32",
    n="i32",
    leaf_count="i64",
    alpha="f64",
    eps="f64",
    form="i32",
    blocks="i32",
)
def write_back(
    td: F32,
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    generation: NDArray[np.uint32],
    leaf: F32,
    leaves: F32,
    nodes: F64,
    owner: NDArray[np.int32],
    max_leaf: F32,
    diagnostics: I64,
    barrier: NDArray[np.uint32],
    ticket: NDArray[np.uint32],
    n: int,
    leaf_count: int,
    alpha: float,
    eps: float,
    form: int,
    blocks: int,
) -> None:
    """`td`, `index`, `sampled_generation` [n] into `leaves` [N] and `nodes`; `leaf` [n] is scratch.

    ``form`` (`form_of`) and ``blocks`` (`blocks_of`) shape the launch alone. The nodes must have
    been in step with the leaves.

    Raises:
        ValueError: `form` is none.
    """
    Form(form)
    del blocks
    claim_priorities(
        td,
        index,
        sampled_generation,
        generation,
        leaf,
        owner,
        diagnostics,
        n,
        leaf_count,
        alpha,
        eps,
    )
    write_priorities(leaf, index, owner, leaves, max_leaf, n, leaf_count)
    drawn = index[:n]
    touched = drawn[(drawn >= 0) & (drawn < leaf_count)]
    refresh(leaves[:leaf_count], nodes[: node_count(leaf_count)], touched)
    barrier[0] ^= np.uint32(1 << 31)
    ticket[0] = 0
