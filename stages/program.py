"""A training step as data: phases of ops over named buffers.

The step is not code that runs but a value that can be printed, compared, budgeted and rewritten.
A stage is a function from one program to another (`onegraph.stages.stage`); the runner
(`onegraph.stages.runner`) is the only place where a program becomes device calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import CONDITION
from onegraph.kernels.device.base import Epilogue, Matmul, Module
from onegraph.kernels.launch_group import group_name, most_members, obstacle
from onegraph.kernels.learner.gemm_group import MEMBERS
from onegraph.kernels.learner.matmul import Precision
from onegraph.kernels.learner.row_stacks import Rows, rows_of, stacks

Space = Literal["device", "pinned", "host"]


#: The parameter by which the control of a loop says whether there is another turn.
GO = "go"


class ProgramError(ValueError):
    """A program or a rewrite of it does not hold together; the message names the op or buffer."""


@dataclass(frozen=True)
class Buffer:
    """A named array that ops read and write; the runner allocates it.

    Attributes:
        shape: dimensions; () is one element.
        dtype: catalogue code (``f32``, ``i64``, …).
        space: device memory, pinned host memory that the device maps, or plain host memory.
        initial: gives the first contents; without it the buffer starts as zeros.
        persistent: part of the training state, so that checkpoints hold it.
        transient: allocated and freed inside the step by `Alloc` and `Free` ops.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    space: Space = "device"
    initial: Callable[[], NDArray[Any]] | None = field(default=None, compare=False)
    persistent: bool = False
    transient: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def same_memory(self, other: Buffer) -> bool:
        """Whether one array can serve both declarations."""

        def memory(b: Buffer) -> tuple[object, ...]:
            return b.shape, b.dtype, b.space, b.transient

        return memory(self) == memory(other)

    @property
    def declaration(self) -> str:
        return f"{self}{', persistent' if self.persistent else ''}"

    def __str__(self) -> str:
        marks: list[str] = [self.space] if self.space != "device" else []
        marks += ["transient"] if self.transient else []
        shape = "x".join(map(str, self.shape)) or "1"
        return f"{self.name}: {self.dtype}[{shape}]" + (f" ({', '.join(marks)})" if marks else "")


@dataclass(frozen=True)
class Ref:
    """All of a buffer, or `size` elements of it from flat element `offset` on."""

    buffer: str
    offset: int = 0
    size: int | None = None

    def __str__(self) -> str:
        if self.size is None and not self.offset:
            return self.buffer
        end = "" if self.size is None else str(self.offset + self.size)
        return f"{self.buffer}[{self.offset}:{end}]"

    def overlaps(self, other: Ref) -> bool:
        """Whether both name an element; one without a size reaches to its buffer's end."""
        ends = (np.inf if r.size is None else r.offset + r.size for r in (self, other))
        return self.buffer == other.buffer and max(self.offset, other.offset) < min(ends)


def ref(value: str | Ref) -> Ref:
    """A whole-buffer `Ref` for a name; a `Ref` as it is."""
    return Ref(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Op:
    """One thing that a step does.

    Attributes:
        group: names the function it serves in its phase (``sample``, ``counters``, …), by which a
            stage finds what it replaces.
    """

    kind: ClassVar[str] = ""
    group: str = field(default="", kw_only=True)

    def reads(self) -> frozenset[str]:
        """Names of the buffers whose contents matter to it."""
        return frozenset()

    def writes(self) -> frozenset[str]:
        """Names of the buffers that it changes."""
        return frozenset()

    def calls(self) -> Counter[str]:
        """Device calls by ledger kind, in steady state."""
        return Counter({self.kind: 1})

    @property
    def label(self) -> str:
        return self.kind

    def lines(self) -> Iterator[str]:
        """How the op prints."""
        yield self.label


@dataclass(frozen=True)
class Launch(Op):
    """Launch a catalogue kernel. `args` maps every parameter to a buffer or a constant."""

    kind: ClassVar[str] = "launch"
    kernel: str
    args: Mapping[str, Ref | int | float] = field(hash=False)
    module: Module = "shared"

    def _refs(self, *access: str) -> frozenset[str]:
        from onegraph.kernels.catalogue import find

        return frozenset(
            value.buffer
            for param in find(self.kernel).params
            if param.access in access and isinstance(value := self.args.get(param.name), Ref)
        )

    def reads(self) -> frozenset[str]:
        return self._refs("in", "inout")

    @property
    def written(self) -> tuple[Ref, ...]:
        """What it writes."""
        from onegraph.kernels.catalogue import find

        written = [p.name for p in find(self.kernel).params if p.access in ("out", "inout")]
        return tuple(v for name in written if isinstance(v := self.args.get(name), Ref))

    @property
    def touched(self) -> tuple[Ref, ...]:
        """What it reads or writes."""
        return tuple(v for v in self.args.values() if isinstance(v, Ref))

    def writes(self) -> frozenset[str]:
        return self._refs("out", "inout")

    @property
    def label(self) -> str:
        return f"launch {self.kernel}"

    def lines(self) -> Iterator[str]:
        args = ", ".join(f"{k}={v}" for k, v in self.args.items())
        suffix = "" if self.module == "shared" else f" @{self.module}"
        yield f"launch {self.kernel}({args}){suffix}"


@dataclass(frozen=True)
class OpGroup(Op):
    """Ops of one kind that do not depend on one another, in one launch.

    Raises:
        ProgramError: a member with a module or an op group of its own, or one that reads or writes
            what another one writes.
    """

    members: tuple[Launch | MatmulOp, ...]
    module: Module = "shared"

    def __post_init__(self) -> None:
        if strange := [m.label for m in self.members if m.module != "shared" or m.group]:
            raise ProgramError(
                f"{strange[0]}: module and group are those of the whole {self.kind} group"
            )
        for one, other in combinations(self.members, 2):
            if found := conflict([one], [other]):
                first, second, written = found
                raise ProgramError(
                    f"{first.label} and {second.label} can't run at once: the first writes"
                    f" {written}, which the second touches too"
                )

    @property
    def written(self) -> tuple[Ref, ...]:
        """What it writes."""
        return tuple(r for member in self.members for r in member.written)

    @property
    def touched(self) -> tuple[Ref, ...]:
        """What it reads or writes."""
        return tuple(r for member in self.members for r in member.touched)

    def reads(self) -> frozenset[str]:
        return frozenset().union(*(member.reads() for member in self.members))

    def writes(self) -> frozenset[str]:
        return frozenset().union(*(member.writes() for member in self.members))

    def lines(self) -> Iterator[str]:
        yield f"{self.kind} group" + ("" if self.module == "shared" else f" @{self.module}") + " {"
        for member in self.members:
            for line in member.lines():
                yield "  " + line
        yield "}"


@dataclass(frozen=True)
class LaunchGroup(OpGroup):
    """Launches of one kernel that do not depend on one another, by one, which is one graph node.

    `onegraph.kernels.launch_group.obstacle` says of which kernels there is none;
    `onegraph.stages.launch_groups.grouped` forms them.

    Raises:
        ProgramError: fewer than 2 or more than 8 members, of two kernels or of one that can't be
            grouped, one with a module or an op group of its own, or one that reads or writes what
            another one writes.
    """

    kind: ClassVar[str] = "launch"
    members: tuple[Launch, ...]

    def __post_init__(self) -> None:
        from onegraph.kernels.catalogue import find

        kernels = list(dict.fromkeys(member.kernel for member in self.members))
        if len(kernels) != 1:
            raise ProgramError(
                f"a launch group is of one kernel, got {', '.join(kernels) or 'no members'}"
            )
        spec = find(kernels[0])
        if why := obstacle(spec):
            raise ProgramError(f"{self.members[0].label} can't stand in a launch group: {why}")
        if not 1 < len(self.members) <= most_members(spec):
            raise ProgramError(
                f"{self.label}: a launch group of it has 2 to {most_members(spec)} members, got"
                f" {len(self.members)}"
            )
        super().__post_init__()

    @property
    def kernel(self) -> str:
        """The kernel that each member launches."""
        return self.members[0].kernel

    @property
    def launched(self) -> str:
        """The name of the kernel that does them all."""
        from onegraph.kernels.catalogue import find

        return group_name(find(self.kernel), len(self.members))

    @property
    def label(self) -> str:
        return f"launch {len(self.members)} x {self.kernel}"


@dataclass(frozen=True)
class MatmulOp(Op):
    """``out = epilogue(op(a) @ op(b))`` with `m` x `n` results over `k`."""

    kind: ClassVar[str] = "matmul"
    m: int
    n: int
    k: int
    a: Ref
    b: Ref
    out: Ref
    extra: Ref | None = None
    trans_a: bool = False
    trans_b: bool = False
    epilogue: Epilogue = "none"
    module: Module = "shared"
    precision: Precision = "float32"

    @property
    def spec(self) -> Matmul:
        """The shape that a device multiplies."""
        return Matmul(
            self.m, self.n, self.k, self.trans_a, self.trans_b, self.epilogue, self.precision
        )

    @property
    def rows(self) -> Rows:
        """What decides whether another product's rows follow its own in memory."""
        a, b, out = ((r.buffer, r.offset) for r in (self.a, self.b, self.out))
        return rows_of(
            (self.m, self.n, self.k),
            a,
            b,
            out,
            None if self.extra is None else (self.extra.buffer, self.extra.offset),
            rest=(self.trans_b, self.precision),
            trans_a=self.trans_a,
            epilogue=self.epilogue,
        )

    def reads(self) -> frozenset[str]:
        extra = None if self.epilogue == "bias_grad" else self.extra
        return frozenset(r.buffer for r in (self.a, self.b, extra) if r is not None)

    @property
    def written(self) -> tuple[Ref, ...]:
        """What it writes."""
        extra = self.extra if self.epilogue == "bias_grad" else None
        return (self.out,) if extra is None else (self.out, extra)

    @property
    def touched(self) -> tuple[Ref, ...]:
        """What it reads or writes."""
        given = self.a, self.b, self.out
        return given if self.extra is None else (*given, self.extra)

    def writes(self) -> frozenset[str]:
        return frozenset(r.buffer for r in self.written)

    @property
    def label(self) -> str:
        return f"matmul {self.out}"

    def lines(self) -> Iterator[str]:
        a, b = (
            f"{r}{'ᵀ' if t else ''}" for r, t in ((self.a, self.trans_a), (self.b, self.trans_b))
        )
        end = "" if self.epilogue == "none" else f" {self.epilogue}({self.extra})"
        end += "" if self.precision == "float32" else f" in {self.precision}"
        suffix = "" if self.module == "shared" else f" @{self.module}"
        yield f"matmul {self.out}[{self.m}x{self.n}] = {a} · {b} over {self.k}{end}{suffix}"


@dataclass(frozen=True)
class MatmulGroup(OpGroup):
    """Products that do not depend on one another, in one launch, which is one node of a graph.

    `onegraph.kernels.learner.gemm_group.groups` says which products a device takes so. It takes up
    to four; members whose rows follow one another in memory are one to it (`in_launch`).

    Raises:
        ProgramError: fewer than two members, more than four in the launch, one with a module or an
            op group of its own, or one that reads or writes what another one writes.
    """

    kind: ClassVar[str] = "matmul"
    members: tuple[MatmulOp, ...]

    def __post_init__(self) -> None:
        count = len(self.in_launch)
        if len(self.members) < 2 or count > MEMBERS:
            raise ProgramError(f"{self.label}: a group has 2 to {MEMBERS} members, got {count}")
        super().__post_init__()

    @property
    def in_launch(self) -> tuple[MatmulOp, ...]:
        """The products as a GPU has them: a stack of rows is its first one, with all rows."""
        return tuple(
            replace(self.members[places[0]], m=sum(self.members[i].m for i in places))
            for places in stacks([member.rows for member in self.members])
        )

    @property
    def label(self) -> str:
        return f"matmul {', '.join(str(member.out) for member in self.members)}"


@dataclass(frozen=True)
class Memset(Op):
    """Zero a buffer: in stream order, or (``blocking``) through the call that is waited for."""

    kind: ClassVar[str] = "memset"
    dst: Ref
    blocking: bool = False

    @property
    def written(self) -> tuple[Ref, ...]:
        """What it writes."""
        return (self.dst,)

    @property
    def touched(self) -> tuple[Ref, ...]:
        """What it reads or writes."""
        return (self.dst,)

    def writes(self) -> frozenset[str]:
        return frozenset({self.dst.buffer})

    def calls(self) -> Counter[str]:
        return Counter({"memset_sync": 1, "sync": 1} if self.blocking else {"memset": 1})

    @property
    def label(self) -> str:
        return f"memset {self.dst}"

    def lines(self) -> Iterator[str]:
        yield f"memset{'_sync' if self.blocking else ''} {self.dst}"


@dataclass(frozen=True)
class Copy(Op):
    """Copy between buffers; the direction follows from their spaces and is stated.

    ``via`` names the array method that a device-to-host copy goes through, where a stage is about
    that method (the deprecated ``to_host``).
    """

    kind: ClassVar[str] = "copy"
    dst: Ref
    src: Ref
    direction: Literal["htod", "dtoh", "dtod"]
    via: Literal["", "to_host"] = ""

    @property
    def written(self) -> tuple[Ref, ...]:
        """What it writes."""
        return (self.dst,)

    @property
    def touched(self) -> tuple[Ref, ...]:
        """What it reads or writes."""
        return self.dst, self.src

    def reads(self) -> frozenset[str]:
        return frozenset({self.src.buffer})

    def writes(self) -> frozenset[str]:
        return frozenset({self.dst.buffer})

    def calls(self) -> Counter[str]:
        return Counter({"dtoh": 1, "sync": 1} if self.direction == "dtoh" else {self.direction: 1})

    @property
    def label(self) -> str:
        return f"copy_{self.direction} {self.dst} <- {self.src}"

    def lines(self) -> Iterator[str]:
        yield self.label + (f" via {self.via}()" if self.via else "")


#: Work on the device of which it is known what it touches.
Work = Launch | LaunchGroup | MatmulOp | MatmulGroup | Memset | Copy


def work(op: Op) -> Work | None:
    """`op` as work of which it is known what it touches; ``None`` if it is another kind."""
    if isinstance(op, Copy) and op.direction != "dtod":
        return None
    return op if isinstance(op, Work) else None


def conflict(one: Sequence[Work], other: Sequence[Work]) -> tuple[Work, Work, Ref] | None:
    """Two ops, one of each, that must stay in order, and what the first of them writes.

    They do where one reads or writes what the other writes.
    """
    for before, after in ((one, other), (other, one)):
        touched: dict[str, list[tuple[Ref, Work]]] = {}
        for op in after:
            for r in op.touched:
                touched.setdefault(r.buffer, []).append((r, op))
        for op in before:
            for written in op.written:
                for r, toucher in touched.get(written.buffer, ()):
                    if written.overlaps(r):
                        return op, toucher, written
    return None


@dataclass(frozen=True)
class Forked(Op):
    """Holds ops of which some run side by side in a graph.

    Outside a graph they are run one after another, so that there they are no op of their own:
    `StepProgram.ops` gives its members.
    """

    @property
    def members(self) -> tuple[Op, ...]:
        """What it holds, in an order in which it can be run."""
        raise NotImplementedError

    def map_ops(self, change: Callable[[Op], Op]) -> Forked:
        """It with `change` applied to each member."""
        raise NotImplementedError

    def reads(self) -> frozenset[str]:
        return frozenset().union(*(op.reads() for op in self.members))

    def writes(self) -> frozenset[str]:
        return frozenset().union(*(op.writes() for op in self.members))

    def calls(self) -> Counter[str]:
        return sum((op.calls() for op in self.members), Counter[str]())


@dataclass(frozen=True)
class Branches(Forked):
    """Lists of ops of which none depends on another: side by side in a graph.

    Raises:
        ProgramError: fewer than two branches, an empty one, an op that is no launch, product,
            copy on the device or stream-ordered memset, one with an op group of its own, or a
            branch that writes what another reads or writes.
    """

    kind: ClassVar[str] = "branches"
    branches: tuple[tuple[Op, ...], ...]

    def __post_init__(self) -> None:
        if len(self.branches) < 2 or not all(self.branches):
            raise ProgramError(
                f"branches are 2 or more lists of ops, got {len(self.branches)} of"
                f" {', '.join(str(len(b)) for b in self.branches) or 'no'} ops"
            )
        for op in self.members:
            if work(op) is None or not graphable(op):
                raise ProgramError(
                    f"{next(op.lines())} can't stand in a branch: that takes launches, matrix"
                    " products, copies on the device and memsets in stream order; put it before or"
                    " after"
                )
            if op.group:
                raise ProgramError(f"{op.label}: the group is that of the branches as a whole")
        for one, other in combinations(self._works(), 2):
            if found := conflict(one, other):
                first, second, written = found
                raise ProgramError(
                    f"{first.label} and {second.label} can't stand in two branches: the first"
                    f" writes {written}, which the second touches too"
                )

    def _works(self) -> list[list[Work]]:
        return [[w for op in branch if (w := work(op)) is not None] for branch in self.branches]

    @property
    def members(self) -> tuple[Op, ...]:
        """The ops of all branches, one branch after another."""
        return tuple(op for branch in self.branches for op in branch)

    def map_ops(self, change: Callable[[Op], Op]) -> Branches:
        """The branches with `change` applied to each member."""
        return replace(self, branches=tuple(tuple(map(change, b)) for b in self.branches))

    @property
    def label(self) -> str:
        return f"{len(self.branches)} branches"

    def lines(self) -> Iterator[str]:
        yield "branches {"
        for branch in self.branches:
            yield "  {"
            for op in branch:
                for line in op.lines():
                    yield "    " + line
            yield "  }"
        yield "}"


def opened(ops: Iterable[Op]) -> Iterator[Op]:
    """`ops` with the members of what is forked in its place."""
    for op in ops:
        if isinstance(op, Forked):
            yield from op.members
        else:
            yield op


def changed(op: Op, change: Callable[[Op], Op]) -> Op:
    """`change` of an op, or of each member of what is forked."""
    return op.map_ops(change) if isinstance(op, Forked) else change(op)


@dataclass(frozen=True)
class Alloc(Op):
    """Allocate a transient buffer inside the step."""

    kind: ClassVar[str] = "alloc"
    buffer: str

    def writes(self) -> frozenset[str]:
        return frozenset({self.buffer})

    @property
    def label(self) -> str:
        return f"alloc {self.buffer}"


@dataclass(frozen=True)
class Free(Op):
    """Free a transient buffer."""

    kind: ClassVar[str] = "free"
    buffer: str

    def reads(self) -> frozenset[str]:
        return frozenset({self.buffer})

    @property
    def label(self) -> str:
        return f"free {self.buffer}"


#: Host arrays by buffer name, as a `Host` op's function gets them.
HostArrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Host(Op):
    """Host code in the step. It may touch the host and pinned buffers that it names, no more."""

    kind: ClassVar[str] = "host"
    name: str
    run: Callable[[HostArrays], None] = field(compare=False)
    reads_from: tuple[str, ...] = ()
    writes_to: tuple[str, ...] = ()

    def reads(self) -> frozenset[str]:
        return frozenset(self.reads_from)

    def writes(self) -> frozenset[str]:
        return frozenset(self.writes_to)

    @property
    def label(self) -> str:
        return f"host {self.name}"

    def lines(self) -> Iterator[str]:
        yield f"host {self.name}({', '.join(self.reads_from)}) -> {', '.join(self.writes_to)}"


@dataclass(frozen=True)
class Sync(Op):
    """Wait for the device."""

    kind: ClassVar[str] = "sync"


@dataclass(frozen=True)
class RecordEvent(Op):
    """Record boundary event `index` on timed steps; `before` is the phase that begins there."""

    kind: ClassVar[str] = "event_record"
    index: int
    before: str

    @property
    def label(self) -> str:
        return f"record_event {self.index}"

    def lines(self) -> Iterator[str]:
        where = f"before {self.before}" if self.before else "end"
        yield f"record_event {self.index} ({where}), timed"


def waiting(after: tuple[str, ...] | None) -> str:
    """In words what a phase or a child waits for, where that is not the one before it."""
    return "" if after is None else f" after {', '.join(after) or 'nothing'}"


@dataclass(frozen=True)
class GraphLaunch(Op):
    """Launch `body` as one graph; nested graph launches become child graphs of it.

    The runner executes the body eagerly the first time (which loads every kernel and fixes every
    matmul plan), then captures it, and from then on launches the graph.

    Attributes:
        after: of a child, the names of those before it in its parent that it waits for; ``None``:
            of the one before it. A parent that records events runs its children one by one.
    """

    kind: ClassVar[str] = "graph_launch"
    name: str
    body: tuple[Op, ...]
    after: tuple[str, ...] | None = None

    def reads(self) -> frozenset[str]:
        return frozenset().union(*(op.reads() for op in self.body))

    def writes(self) -> frozenset[str]:
        return frozenset().union(*(op.writes() for op in self.body))

    @property
    def events(self) -> int:
        return sum(isinstance(op, RecordEvent) for op in self.body)

    @property
    def label(self) -> str:
        return f"graph_launch {self.name}"

    def nodes(self) -> int:
        """Work nodes of the plain form, children's included."""
        return sum(
            op.nodes() if isinstance(op, GraphLaunch) else not isinstance(op, RecordEvent)
            for op in opened(self.body)
        )

    def lines(self) -> Iterator[str]:
        yield f"graph_launch {self.name}{waiting(self.after)} {{"
        for op in self.body:
            for line in op.lines():
                yield "  " + line
        yield "}"


@dataclass(frozen=True)
class WhileGraph(GraphLaunch):
    """Take turns of `body` in one graph launch, as long as its last op, the control, says so.

    The control is a launch that writes its parameter ``go`` (int32 [1]) and gives its value to the
    condition whose handle it gets as ``condition``. It stands before the first turn too, so that
    there may be none.

    Raises:
        ProgramError: a body that does nothing, or a last op that can't be the control.
    """

    def __post_init__(self) -> None:
        from onegraph.kernels.catalogue import find

        control = self.body[-1] if self.body else None
        if not isinstance(control, Launch) or len(self.body) < 2:
            raise ProgramError(
                f"{self.label}: a turn is ops that work, and last the launch that decides on"
                f" another turn; got {', '.join(op.label for op in self.body) or 'nothing'}"
            )
        declared = {p.name: (p.access, p.dtype) for p in find(control.kernel).params}
        wanted = {GO: ("out", "i32"), CONDITION: ("scalar", "u64")}
        for name, how in wanted.items():
            if declared.get(name) != how or name not in control.args:
                raise ProgramError(
                    f"{self.label}: kernel {control.kernel} can't end the loop: it takes no {name}"
                    f" ({' '.join(how)})"
                )

    @property
    def control(self) -> Launch:
        """The launch that decides on another turn."""
        control = self.body[-1]
        assert isinstance(control, Launch)
        return control

    @property
    def go(self) -> Ref:
        """Where the control writes whether there is another turn."""
        go = self.control.args[GO]
        assert isinstance(go, Ref)
        return go

    @property
    def turn(self) -> tuple[Op, ...]:
        """What a turn does, without the control."""
        return self.body[:-1]

    def nodes(self) -> int:
        """Work nodes of one turn, and the control before it."""
        return super().nodes() + 1

    @property
    def label(self) -> str:
        return f"while_graph {self.name}"

    def lines(self) -> Iterator[str]:
        first = next(self.control.lines())
        yield f"while_graph {self.name} ({self.go} != 0, after {first}) {{"
        for op in self.body:
            for line in op.lines():
                yield "  " + line
        yield "}"


#: Ops that a graph can hold.
GRAPHABLE = (Launch, LaunchGroup, MatmulOp, MatmulGroup, Forked, GraphLaunch)

#: Ops that launch kernels, from one of a device's modules.
LAUNCHING = (Launch, LaunchGroup, MatmulOp, MatmulGroup)


def graphable(op: Op) -> bool:
    """Whether `op` may stand in a captured phase."""
    if isinstance(op, Memset):
        return not op.blocking
    if isinstance(op, Copy):
        return op.direction == "dtod"
    return isinstance(op, GRAPHABLE)


def graphed(op: Op) -> Op:
    """`op` from the module of what is launched inside graphs."""
    return replace(op, module="graphed") if isinstance(op, LAUNCHING) else op


@dataclass(frozen=True)
class Phase:
    """A named part of the step. `tags` let a budget speak of a kind of phase (``sampling``).

    Attributes:
        after: names of the phases that it waits for; ``None``: of the one before it. Where phases
            are launched one by one they run in their order, which is one of those that it allows.
    """

    name: str
    ops: tuple[Op, ...] = ()
    tags: frozenset[str] = frozenset()
    after: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Fragment:
    """Ops, and the buffers they need, that a stage puts in the place of a group."""

    ops: tuple[Op, ...] = ()
    buffers: tuple[Buffer, ...] = ()


@dataclass(frozen=True)
class Merge:
    """Consecutive phases that become one, and the ops that take the place of theirs.

    Attributes:
        name: of the phase that takes their place.
        phases: names; some of them may have no work. They may be those of merges before this one.
        fragment: kernels that do the phases together; or what makes it of the phases' own ops,
            which it is given in their order (`onegraph.stages.schedule.regrouped`).
    """

    name: str
    phases: tuple[str, ...]
    fragment: Fragment | Callable[[tuple[Op, ...]], Fragment]

    def of(self, ops: tuple[Op, ...]) -> Fragment:
        """The fragment in the place of `ops`, which are those of the phases."""
        return self.fragment if isinstance(self.fragment, Fragment) else self.fragment(ops)


class Parts(Protocol):
    """What a stage asks of the program's owner."""

    def fragment(self, stage: str, program: str, group: str) -> Fragment:
        """The replacement of one group at one stage."""
        ...

    def merges(self, program: str) -> tuple[Merge, ...]:
        """The runs of phases that are faster together, in order and apart; none: all stay."""
        ...


@dataclass(frozen=True)
class StepProgram:
    """An ordered list of phases, and the buffers that their ops name.

    Attributes:
        scope: where the ledger counts its calls; ``round``: the program is a round of whole steps
            (`onegraph.stages.round_program`).
    """

    name: str
    scope: Literal["learn", "collect", "round", "epoch"]
    phases: tuple[Phase, ...]
    buffers: tuple[Buffer, ...]

    def __post_init__(self) -> None:
        names = [b.name for b in self.buffers]
        if twice := [n for n, count in Counter(names).items() if count > 1]:
            raise ProgramError(f"program {self.name}: buffer {twice[0]!r} is declared twice")
        if twice := [n for n, count in Counter(p.name for p in self.phases).items() if count > 1]:
            raise ProgramError(f"program {self.name}: phase {twice[0]!r} is declared twice")
        before: set[str] = set()
        for phase in self.phases:
            if unknown := [n for n in phase.after or () if n not in before]:
                raise ProgramError(
                    f"program {self.name}: phase {phase.name!r} waits for {unknown[0]!r}, and no"
                    f" phase of that name stands before it; name one of"
                    f" {', '.join(sorted(before)) or 'none'}"
                )
            before.add(phase.name)
        known = set(names)
        for phase in self.phases:
            for op in phase.ops:
                if missing := (op.reads() | op.writes()) - known:
                    raise ProgramError(
                        f"program {self.name}, phase {phase.name}: {op.label} names buffer"
                        f" {sorted(missing)[0]!r}, which is not declared"
                    )

    @property
    def buffer(self) -> Mapping[str, Buffer]:
        return {b.name: b for b in self.buffers}

    def ops(self) -> Iterator[tuple[str, Op]]:
        """Every op with its phase, in order: branches opened, graph bodies not."""
        for phase in self.phases:
            for op in opened(phase.ops):
                yield phase.name, op

    def all_ops(self) -> Iterator[tuple[str, Op, int]]:
        """Every op with its phase and how many graphs it stands in: branches, graphs opened."""

        def visit(phase: str, op: Op, depth: int) -> Iterator[tuple[str, Op, int]]:
            yield phase, op, depth
            if isinstance(op, GraphLaunch):
                for inner in opened(op.body):
                    name = inner.name if isinstance(inner, GraphLaunch) else phase
                    yield from visit(name, inner, depth + 1)

        for phase, op in self.ops():
            yield from visit(phase, op, 0)

    def groups(self) -> frozenset[str]:
        """The groups that a stage could replace."""
        return frozenset(op.group for phase in self.phases for op in phase.ops if op.group)

    def replace_group(self, group: str, fragment: Fragment) -> StepProgram:
        """The program with the fragment's ops in the place of the ops of `group`.

        They stand where the first of those stood. Buffers of the fragment stand in for those of
        the same name, and buffers that no op uses any more are dropped.
        """
        found = 0
        phases = []
        for phase in self.phases:
            ops: list[Op] = []
            here = False
            for op in phase.ops:
                if op.group != group:
                    ops.append(op)
                elif not here:
                    here, found = True, found + 1
                    ops.extend(replace(new, group=group) for new in fragment.ops)
            phases.append(replace(phase, ops=tuple(ops)))
        if found != 1:
            known = ", ".join(sorted(self.groups())) or "none"
            raise ProgramError(
                f"program {self.name}: group {group!r} stands in {found} phases; a stage"
                f" replaces it in exactly one (groups here: {known})"
            )
        buffers = dict(self.buffer)
        buffers.update((b.name, b) for b in fragment.buffers)
        return StepProgram(self.name, self.scope, tuple(phases), tuple(buffers.values())).pruned()

    def pruned(self) -> StepProgram:
        """Without the buffers that no op names."""
        used: set[str] = set()
        for _, op in self.ops():
            used |= op.reads() | op.writes()
        return replace(self, buffers=tuple(b for b in self.buffers if b.name in used))

    def map_ops(self, change: Callable[[Op], Op]) -> StepProgram:
        """The program with `change` applied to each op, graph bodies not opened."""
        return replace(
            self,
            phases=tuple(
                replace(p, ops=tuple(changed(op, change) for op in p.ops)) for p in self.phases
            ),
        )

    @property
    def takes_turns(self) -> bool:
        """Whether one step of it is as many turns as its control says."""
        return any(isinstance(op, WhileGraph) for _, op in self.ops())

    def calls(self, *, timed: bool = False) -> Counter[tuple[str, str]]:
        """Device calls of a step in steady state: ``counts[(phase, kind)]``.

        A timed step also records boundary events; where those are nodes of a graph, it sets each
        node's event instead.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for phase, op in self.ops():
            if isinstance(op, RecordEvent) and not timed:
                continue
            for kind, n in op.calls().items():
                counts[phase, kind] += n
            if isinstance(op, GraphLaunch) and timed and op.events:
                counts[phase, "event_set"] += op.events
        return counts

    def describe(self, *, buffers: bool = True) -> str:
        """The program as text, one op a line."""
        lines = [f"program {self.name} ({self.scope})"]
        if buffers:
            lines += ["buffers"] + [f"  {b}" for b in sorted(self.buffers, key=lambda b: b.name)]
        for phase in self.phases:
            tags = f" [{', '.join(sorted(phase.tags))}]" if phase.tags else ""
            head = f"phase {phase.name}{tags}{waiting(phase.after)}"
            lines.append(head + ("" if phase.ops else ": nothing"))
            lines += [f"  {line}" for op in phase.ops for line in op.lines()]
        return "\n".join(lines)


def merge_buffers(*groups: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """One tuple of buffers; the same name must mean the same buffer everywhere."""
    merged: dict[str, Buffer] = {}
    for group in groups:
        for buffer in group:
            known = merged.setdefault(buffer.name, buffer)
            if known != buffer:
                raise ProgramError(
                    f"buffer {buffer.name!r} is declared as {known.declaration}"
                    f" and as {buffer.declaration}"
                )
            if known.initial is None:
                merged[buffer.name] = buffer
    return tuple(merged.values())
