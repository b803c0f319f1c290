"""Products that are one where they lie in memory: the rows of one follow those of another.

``[a; c] B = [aB; cB]``: two products with the same right factor, of which the second's left factor
and result begin where the first's end, are one product of more rows. A launch has room for four
products (`onegraph.kernels.learner.gemm_group`); of a stack of rows it sees one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

#: Where a matrix begins: the allocation, and the element in it.
Place = tuple[Hashable, int]


@dataclass(frozen=True)
class Block:
    """A row-major matrix of `width` elements a row as it lies in memory, from element `offset`."""

    memory: Hashable
    offset: int
    width: int


@dataclass(frozen=True)
class Rows:
    """What decides whether the rows of one product can follow those of another.

    Attributes:
        alike: what both have to have in common: the right factor, its shape, the epilogue. ``None``
            for a product that is no stack of rows: its left factor is transposed, say.
        count: of rows.
        blocks: what goes by rows: the left factor, the result, a mask.
    """

    alike: Hashable
    count: int
    blocks: tuple[Block, ...]

    @property
    def stackable(self) -> bool:
        """Whether another's rows could follow, or be followed by these."""
        return self.alike is not None and self.count > 0 and all(b.width > 0 for b in self.blocks)

    def begins(self, rows: int = 0) -> Hashable:
        """Where a product begins whose first row is `rows` rows further on."""
        return self.alike, tuple((b.memory, b.offset + rows * b.width) for b in self.blocks)


def rows_of(
    sizes: tuple[int, int, int],
    a: Place,
    b: Place,
    out: Place,
    extra: Place | None,
    *,
    rest: Hashable,
    trans_a: bool,
    epilogue: str,
) -> Rows:
    """`Rows` of ``out = epilogue(op(a) op(b))`` with `m` x `n` results over `k`.

    The arrays are given by where they begin, `extra` as the epilogue has it
    (`onegraph.kernels.learner.gemm`); `trans_a` says that `a` has its rows as columns, and `rest`
    is what else the product is computed by. `epilogue` is ``none``, ``bias``, ``bias_relu``,
    ``relu_grad`` or ``bias_grad``.
    """
    m, n, k = sizes
    blocks = [Block(*a, k), Block(*out, n)]
    if epilogue == "relu_grad" and extra is not None:
        blocks.append(Block(*extra, n))
        extra = None
    whole = trans_a or epilogue == "bias_grad"
    return Rows(None if whole else (n, k, b, extra, epilogue, rest), m, tuple(blocks))


def stacks(products: Sequence[Rows]) -> list[list[int]]:
    """The products by stack, each from its first row on; one that has no neighbour is by itself.

    Stacks stand in the order of the first of their products in the list. No product is to write
    what another one touches.
    """
    begins = {p.begins(): i for i, p in enumerate(products) if p.stackable}
    following = {
        i: after
        for i, p in enumerate(products)
        if p.stackable and (after := begins.get(p.begins(p.count))) is not None
    }
    found = []
    for first in set(range(len(products))) - set(following.values()):
        stack = [first]
        while (after := following.get(stack[-1])) is not None:
            stack.append(after)
        found.append(stack)
    return sorted(found, key=min)
