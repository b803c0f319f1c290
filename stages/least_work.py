"""What a step can't do without, read from its program: memory traffic, arithmetic, nodes in a row.

`docs/roofline.md` says what each of the three numbers leaves out. All of them are exact functions
of the program: nothing is run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from onegraph.kernels.catalogue import DTYPES, Elements, find
from onegraph.kernels.learner.matmul import Precision
from onegraph.stages.program import (
    Branches,
    Buffer,
    Copy,
    GraphLaunch,
    Launch,
    MatmulGroup,
    MatmulOp,
    Memset,
    Op,
    Ref,
    StepProgram,
)


@dataclass(frozen=True)
class Work:
    """What a step needs, however it is launched.

    Attributes:
        traffic_bytes: of device memory, read and written.
        flops: of its matrix products by precision; a multiply-add is two.
    """

    traffic_bytes: int
    flops: Mapping[Precision, int]

    @classmethod
    def of(cls, program: StepProgram) -> Work:
        """What `program` needs. It is to have its buffers on the device, and its products."""
        return cls(sum(least_traffic(program).values()), product_flops(program))


# ---------------------------------------------------------------- arithmetic


def product_flops(program: StepProgram) -> dict[Precision, int]:
    """``2 m n k`` of every matrix product, by precision."""
    total: Counter[Precision] = Counter()
    for _, op, _ in program.all_ops():
        products = op.members if isinstance(op, MatmulGroup) else (op,)
        for product in products:
            if isinstance(product, MatmulOp):
                total[product.precision] += 2 * product.m * product.n * product.k
    return dict(total)


# ---------------------------------------------------------------- nodes


def longest_chain(program: StepProgram) -> int:
    """Work nodes of a step that wait for one another, branches side by side counting once.

    Of a loop: those of one turn. What is launched outside a graph follows one another too.
    """
    return sum(_chain(phase.ops) for phase in program.phases)


def _chain(ops: Iterable[Op]) -> int:
    total = 0
    for op in ops:
        match op:
            case Branches():
                total += max(map(_chain, op.branches))
            case GraphLaunch():
                total += _chain(op.body)
            case Launch() | MatmulOp() | MatmulGroup() | Memset() | Copy():
                total += 1
    return total


# ---------------------------------------------------------------- memory


class _Spans:
    """A set of elements, as ranges of them in order that do not meet."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        kept = []
        for a, b in self.ranges:
            if b < start or a > end:
                kept.append((a, b))
            else:
                start, end = min(a, start), max(b, end)
        if start < end:
            kept.append((start, end))
        self.ranges = sorted(kept)

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges from `start` to `end` that are not in the set."""
        for a, b in self.ranges:
            if a > start and start < end:
                yield start, min(a, end)
            start = max(start, b)
        if start < end:
            yield start, end

    @property
    def size(self) -> int:
        return sum(b - a for a, b in self.ranges)


@dataclass
class _Use:
    """How a step uses a buffer.

    Attributes:
        written: what it has written so far.
        needed: what it read before it had written it.
        sparse_written, sparse_needed: the same, of elements that are known by number alone: the
            most of any one op, because they may be the same elements in each.
    """

    written: _Spans = field(default_factory=_Spans)
    needed: _Spans = field(default_factory=_Spans)
    sparse_written: int = 0
    sparse_needed: int = 0


@dataclass(frozen=True)
class _Access:
    """What an op touches of a buffer: all of `ref`, or `elements` somewhere in it."""

    ref: Ref
    how: Literal["in", "out"]
    elements: int | None = None


def least_traffic(program: StepProgram) -> dict[str, int]:
    """Bytes of each device buffer that a step can't but move, once each way.

    Read: what the step reads before it has written it. Written: what it leaves for later, which is
    what it writes of a persistent buffer, and the part that kernels change of an array that they
    had read in part before (a tree's nodes). Results that begin and end in the step move nothing.
    Where a kernel touches an array in part, it counts as its declaration says
    (`onegraph.kernels.catalogue.KernelSpec`).
    """
    declared = program.buffer
    uses: dict[str, _Use] = {}
    for _, op, _ in program.all_ops():
        for access in _accesses(op):
            buffer = declared[access.ref.buffer]
            if buffer.space == "device":
                _note(uses.setdefault(buffer.name, _Use()), buffer, access)
    found = {name: _moved(declared[name], use) for name, use in uses.items()}
    return {name: moved for name, moved in found.items() if moved}


def _note(use: _Use, buffer: Buffer, access: _Access) -> None:
    start = access.ref.offset
    end = buffer.size if access.ref.size is None else start + access.ref.size
    if access.elements is None:
        if access.how == "out":
            use.written.add(start, end)
        else:
            for a, b in use.written.missing(start, end):
                use.needed.add(a, b)
        return
    elements = min(access.elements, end - start)
    if access.how == "out":
        use.sparse_written = max(use.sparse_written, elements)
    elif any(use.written.missing(start, end)):
        use.sparse_needed = max(use.sparse_needed, elements)


def _moved(buffer: Buffer, use: _Use) -> int:
    read = max(use.needed.size, use.sparse_needed)
    if buffer.persistent:
        written = max(use.written.size, use.sparse_written)
    else:
        written = use.sparse_written if use.sparse_needed else 0
    return (read + written) * DTYPES[buffer.dtype].itemsize


def _accesses(op: Op) -> Iterator[_Access]:
    """What `op` touches: what it reads first."""
    match op:
        case Launch():
            spec = find(op.kernel)
            for how, counts in (("in", spec.sparse_reads), ("out", spec.sparse_writes)):
                for param in spec.params:
                    value = op.args.get(param.name)
                    if param.access in (how, "inout") and isinstance(value, Ref):
                        count = counts.get(param.name)
                        elements = None if count is None else _count(count, op)
                        yield _Access(value, "in" if how == "in" else "out", elements)
        case MatmulOp():
            reads = op.extra if op.epilogue != "bias_grad" else None
            for ref in (op.a, op.b, reads):
                if ref is not None:
                    yield _Access(ref, "in")
            yield from (_Access(ref, "out") for ref in op.written)
        case MatmulGroup():
            for member in op.members:
                yield from _accesses(member)
        case Memset():
            yield _Access(op.dst, "out")
        case Copy():
            yield _Access(op.src, "in")
            yield _Access(op.dst, "out")


def _count(count: Elements, op: Launch) -> int:
    return count({k: v for k, v in op.args.items() if not isinstance(v, Ref)})
