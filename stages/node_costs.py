"""What an op costs a GPU, roughly: enough to tell short nodes from long ones.

The unit is a node of a graph that does next to nothing. On top of it comes what the op does: of a
matrix product the multiply-adds or the memory that it moves, whichever takes longer, but at least
the sum that a block adds up term by term, however idle the rest of the GPU is; of another kernel
its threads. The rates are those of a large GPU, one to two microseconds a unit. They decide on
nothing but speed: every schedule that they lead to computes the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onegraph.kernels.catalogue import find
from onegraph.stages.program import Launch, LaunchGroup, MatmulGroup, MatmulOp, Work

#: Multiply-adds, bytes of a product's matrices, and threads of another kernel in a unit.
MULTIPLY_ADDS, BYTES, THREADS = 1 << 25, 1 << 22, 1 << 16

#: Units of the shortest product; terms in a further one of the first of a sum, how many those are,
#: and terms in a unit of the rest. On an H200 a product of sums of 8 terms took about 6 us, of 256
#: terms 15, and of 2,048 terms 20.
SHORTEST, TERMS, FIRST, REST = 1.0, 1 << 5, 1 << 7, 1 << 10


@dataclass(frozen=True)
class Cost:
    """What one launch costs, in nodes.

    Attributes:
        work: what keeps the whole GPU busy: that of two launches adds up.
        floor: what passes however little there is to do, which is that of the slower one.
    """

    work: float = 0.0
    floor: float = 0.0

    @property
    def nodes(self) -> float:
        """With the node itself."""
        return 1.0 + max(self.work, self.floor)


def cost_of(op: Work) -> Cost:
    """The cost of `op`, which may be a group."""
    members = op.members if isinstance(op, MatmulGroup | LaunchGroup) else (op,)
    return _together(_single(member) for member in members)


def _together(costs: Iterable[Cost]) -> Cost:
    given = list(costs)
    return Cost(sum(c.work for c in given), max(c.floor for c in given))


def _single(op: Work) -> Cost:
    if isinstance(op, MatmulOp):
        moved = 4 * (op.m * op.k + op.k * op.n + op.m * op.n)
        work = max(op.m * op.n * op.k / MULTIPLY_ADDS, moved / BYTES)
        rest = 0.0 if op.spec.is_long else op.k / REST  # a long sum is shared out over many blocks
        return Cost(work, SHORTEST + min(op.k, FIRST) / TERMS + rest)
    return Cost(_threads(op) / THREADS) if isinstance(op, Launch) else Cost()


def _threads(op: Launch) -> int:
    """Threads of a launch; 0 where its arguments do not say how many it takes."""
    spec = find(op.kernel)
    given = {name: value for name, value in op.args.items() if isinstance(value, int)}
    asked = (*spec.work, spec.cluster) if spec.cluster else spec.work
    if any(name not in given for name in asked):
        return 0
    return spec.blocks(given) * spec.block
