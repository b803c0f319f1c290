"""The `Device` protocol: what the runner may ask of a device, with CUDA's rules enforced once.

`HostDevice` and `CudaDevice` implement the underscored methods; the public ones check arguments,
enforce the rules of stream capture and module isolation, and count the call in the ledger. So a
program that breaks a rule on a GPU breaks it, with the same error, on a laptop.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, NoReturn, Protocol, Self
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import CONDITION, DTYPES, KernelArgumentError, KernelSpec, find
from onegraph.kernels.device.facts import DeviceFacts
from onegraph.kernels.device.ledger import Ledger
from onegraph.kernels.launch_group import group_name, most_members, obstacle
from onegraph.kernels.learner import gemm_group, matmul_long
from onegraph.kernels.learner.matmul import Precision
from onegraph.kernels.learner.row_stacks import Rows, rows_of, stacks

Module = Literal["shared", "graphed", "ungraphed"]
Epilogue = Literal["none", "bias", "bias_relu", "relu_grad", "bias_grad"]

#: What the host does while it waits: called now and then, it says in how many seconds the wait may
#: be over, as far as it knows.
Meanwhile = Callable[[], float]

#: Lanes of a fork that may have the device where the others leave it room.
BACKGROUND_LANES = 2

#: Blocks a launch is capped at; kernels stride over what is left.
MAX_BLOCKS = 4096


class DeviceError(RuntimeError):
    """A device call failed, or would have failed on a GPU.

    Attributes:
        name: CUDA's name of the error, e.g. ``CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED``.
        op: the call.
        phase: the program's phase in which it was made; empty outside a step.
    """

    def __init__(self, name: str, op: str, phase: str, detail: str) -> None:
        where = f" in phase {phase}" if phase else ""
        super().__init__(f"{name} at {op}{where}: {detail}")
        self.name, self.op, self.phase, self.detail = name, op, phase, detail


class ModuleMixError(DeviceError):
    """A kernel of the graphed module was launched outside a graph, or the other way round."""


class DeviceArray:
    """A contiguous array in device memory, or in pinned host memory that the device maps.

    Attributes:
        shape, dtype: as in NumPy.
        ptr: device address (0 on the host device).
        host: the NumPy view. On the host device, of the array itself; on CUDA, only of pinned
            memory (live: a kernel's write shows up in it), else ``None``.
        base: the allocation this is a view of, or itself.
        freed: whether the device has let go of it, which then refuses to use it.
        lent: whether another library was given its address (`__cuda_array_interface__`,
            `__dlpack__`). Freeing then only lets go: the memory stays as long as this object does,
            and whoever took the address holds it.
    """

    __slots__ = (
        "__weakref__",
        "_graphs",
        "base",
        "device",
        "dtype",
        "freed",
        "host",
        "keep",
        "lent",
        "name",
        "pinned",
        "ptr",
        "shape",
        "size",
    )

    def __init__(
        self,
        device: Device,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        ptr: int = 0,
        host: NDArray[Any] | None = None,
        pinned: bool = False,
        base: DeviceArray | None = None,
        keep: object = None,
    ) -> None:
        self.device, self.name, self.shape, self.dtype = device, name, shape, dtype
        self.size = math.prod(shape)
        self.ptr, self.host, self.pinned, self.keep = ptr, host, pinned, keep
        self.base = base if base is not None else self
        self.freed = self.lent = False
        self._graphs: WeakSet[Graph] = WeakSet()

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def view(self, offset: int, shape: tuple[int, ...]) -> DeviceArray:
        """`shape` elements from flat element `offset` on, sharing this array's memory."""
        size = math.prod(shape)
        if offset < 0 or offset + size > self.size:
            raise ValueError(
                f"view of {self.name!r}: elements {offset}..{offset + size} do not lie in its"
                f" {self.size}"
            )
        host = None if self.host is None else self.host.reshape(-1)[offset : offset + size]
        return DeviceArray(
            self.device,
            self.name,
            shape,
            self.dtype,
            ptr=self.ptr + offset * self.dtype.itemsize if self.ptr else 0,
            host=None if host is None else host.reshape(shape),
            pinned=self.pinned,
            base=self.base,
        )

    def overlaps(self, other: DeviceArray) -> bool:
        """Whether both have an element in common."""
        if self.base is not other.base or not self.size or not other.size:
            return False
        mine, its = self._address(), other._address()
        return mine < its + other.nbytes and its < mine + self.nbytes

    def _address(self) -> int:
        return self.ptr if self.host is None else int(self.host.ctypes.data)

    # ---------------------------------------------------------------- for other libraries

    def _lend(self, how: str) -> None:
        """Note that the address goes to someone who may keep it.

        Raises:
            DeviceError: the array was freed.
        """
        self.device._alive(f"{how} of {self.name}", self)
        self.base.lent = True

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array in place, by version 3 of the CUDA Array Interface; CuPy and PyTorch take it.

        Nothing is copied and nothing waited for: ``stream`` is the training stream, which the
        taker has to order itself after (CuPy and Numba do; for PyTorch call `Device.synchronize`).
        To be read, not written: a step's graph works on the same memory.

        Raises:
            AttributeError: the device is the host; use `__dlpack__`.
            DeviceError: the array was freed.
        """
        if self.device.kind != "cuda":
            raise AttributeError(
                f"{self!r} is in host memory and has no CUDA array interface; use DLPack"
                " (numpy.from_dlpack, torch.from_dlpack)"
            )
        self._lend("__cuda_array_interface__")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),  # PyTorch takes no array that says it is read-only
            "version": 3,
            "strides": None,
            "stream": self.device._stream_pointer(),
        }

    def __dlpack__(self, **options: Any) -> Any:
        """The array in place as a DLPack capsule, once the device has written it.

        Waits for the device, unless the taker asks for no synchronisation (``stream=-1``). Pinned
        memory is given as what the host sees.

        Raises:
            BufferError: the taker asks for a copy or for another device than the array is on.
            DeviceError: the array was freed, or the stream is capturing.
        """
        self._lend("__dlpack__")
        if self.host is None:
            return self.device._dlpack(self, **options)
        if self.device.kind == "cuda":
            self.device.synchronize()
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of device and its index: (1, 0) for memory that the host sees."""
        self.device._alive(f"__dlpack_device__ of {self.name}", self)
        return self.device._dlpack_device() if self.host is None else (1, 0)

    # ---------------------------------------------------------------- reading back

    def to_host_checkpoint(self) -> NDArray[Any]:
        """Copy to a new NumPy array, waiting for the device. For checkpoints and summaries."""
        out = np.empty(self.shape, self.dtype)
        self.device.copy_dtoh(out, self)
        return out

    def to_host(self) -> NDArray[Any]:
        """Deprecated spelling of `to_host_checkpoint`; it hid a stall in hot code."""
        warnings.warn(
            "DeviceArray.to_host() waits for the device; call to_host_checkpoint() outside the"
            " step, or read the published record inside it",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.to_host_checkpoint()

    def to_vec(self) -> list[Any]:
        """Deprecated: the values as a flat list; use ``to_host_checkpoint().ravel().tolist()``."""
        warnings.warn(
            "DeviceArray.to_vec() waits for the device; call to_host_checkpoint() outside the step",
            DeprecationWarning,
            stacklevel=2,
        )
        values: list[Any] = self.to_host_checkpoint().ravel().tolist()
        return values

    def __repr__(self) -> str:
        place = "pinned" if self.pinned else self.device.kind
        return f"DeviceArray({self.name!r}, {list(self.shape)}, {self.dtype}, {place})"


@dataclass(eq=False)
class DeviceEvent:
    """A point in a stream; two of them give a time."""

    label: str
    handle: Any = None


@dataclass(eq=False)
class Stream:
    """An in-order queue of device work."""

    label: str
    handle: Any = None


@dataclass(frozen=True)
class Matmul:
    """``out[M, N] = epilogue(op(a) @ op(b))``, row-major and contiguous, float32.

    ``bias`` adds `extra` [N]; ``bias_relu`` then clamps at zero; ``relu_grad`` multiplies by
    ``extra > 0``, where `extra` [M, N] is the activation that the forward pass produced.
    ``bias_grad`` leaves the product alone and writes the sums of `b`'s columns to `extra` [N]; `b`
    must not be transposed.

    `precision` lets a device use its tensor cores for what is large enough: ``tf32`` takes the
    factors as TF32 (10 bits behind the point), ``tf32x3`` three such products in the place of one,
    with float32's accuracy (`onegraph.kernels.learner.matmul`). The host takes float32 always.
    """

    m: int
    n: int
    k: int
    trans_a: bool = False
    trans_b: bool = False
    epilogue: Epilogue = "none"
    precision: Precision = "float32"

    @property
    def is_long(self) -> bool:
        """Whether it is `onegraph.kernels.learner.matmul_long`'s, alone or with others like it."""
        return matmul_long.is_long(
            self.m,
            self.n,
            self.k,
            trans_a=self.trans_a,
            trans_b=self.trans_b,
            precision=self.precision,
        )

    @property
    def extra_size(self) -> int:
        sizes = {"none": 0, "relu_grad": self.m * self.n}
        return sizes.get(self.epilogue, self.n)


@dataclass(frozen=True)
class Product:
    """A `Matmul` and the arrays that it is of."""

    spec: Matmul
    a: DeviceArray
    b: DeviceArray
    out: DeviceArray
    extra: DeviceArray | None = None

    @property
    def operands(self) -> tuple[DeviceArray, ...]:
        given = self.a, self.b, self.out
        return given if self.extra is None else (*given, self.extra)

    @property
    def rows(self) -> Rows:
        """What decides whether another product's rows follow its own."""
        a, b, out = (_place(x) for x in (self.a, self.b, self.out))
        spec = self.spec
        return rows_of(
            (spec.m, spec.n, spec.k),
            a,
            b,
            out,
            None if self.extra is None else _place(self.extra),
            rest=(spec.trans_b, spec.precision),
            trans_a=spec.trans_a,
            epilogue=spec.epilogue,
        )


def stacked(members: Sequence[Product]) -> list[Product]:
    """The products as a launch has them: those whose rows follow one another as one."""
    found = []
    for places in stacks([p.rows for p in members]):
        parts = [members[i] for i in places]
        first = parts[0]
        if len(parts) > 1:
            masked = first.spec.epilogue == "relu_grad"
            masks = [p.extra for p in parts if p.extra is not None]
            first = Product(
                replace(first.spec, m=sum(p.spec.m for p in parts)),
                _joined([p.a for p in parts]),
                first.b,
                _joined([p.out for p in parts]),
                _joined(masks) if masked else first.extra,
            )
        found.append(first)
    return found


def _joined(arrays: Sequence[DeviceArray]) -> DeviceArray:
    """Arrays of one allocation that follow one another as one."""
    base, first = _place(arrays[0])
    start = first - base._address() // base.dtype.itemsize
    return base.view(start, (sum(array.size for array in arrays),))


def _place(array: DeviceArray) -> tuple[DeviceArray, int]:
    """Its allocation and its first element: what lies side by side by chance is not together."""
    return array.base, array._address() // array.dtype.itemsize


@dataclass(frozen=True)
class Launch:
    """A kernel with checked arguments, ready to be launched any number of times."""

    spec: KernelSpec
    module: Module
    blocks: int
    arrays: tuple[DeviceArray, ...]
    payload: Any


@dataclass(frozen=True)
class Binding:
    """The checked arguments of one launch, and its blocks."""

    args: Mapping[str, DeviceArray | int | float]
    arrays: tuple[DeviceArray, ...]
    scalars: Mapping[str, int | float]
    blocks: int


@dataclass(frozen=True)
class LaunchGroup:
    """Several launches of one kernel with checked arguments, ready to be done by one launch."""

    spec: KernelSpec
    module: Module
    members: tuple[Binding, ...]
    payload: Any

    @property
    def name(self) -> str:
        """Of the kernel that does them all."""
        return group_name(self.spec, len(self.members))

    @property
    def arrays(self) -> tuple[DeviceArray, ...]:
        """Those of all members."""
        return tuple(array for member in self.members for array in member.arrays)


@dataclass(frozen=True)
class Node:
    """One node of a graph, as the toolkit sees it."""

    kind: str
    label: str


@dataclass(eq=False)
class Graph:
    """Recorded work. It keeps every array and module it uses alive until it is closed.

    Attributes:
        loops: whether it takes turns (`Device.loop`); such a graph can't be part of another.
    """

    label: str
    nodes: list[Node] = field(default_factory=list)
    children: list[Graph] = field(default_factory=list)
    events: list[DeviceEvent] = field(default_factory=list)
    arrays: list[DeviceArray] = field(default_factory=list)
    handle: Any = None
    closed: bool = False
    loops: bool = False

    def uses(self, arrays: Sequence[DeviceArray]) -> None:
        for array in arrays:
            self.arrays.append(array)
            array.base._graphs.add(self)

    def node_count(self) -> int:
        """Nodes that do work: kernels, copies, memsets, event records, children's included.

        Of a loop: those of one turn, and of what decides on the first.
        """
        return len(self.nodes) + sum(child.node_count() for child in self.children)

    def has_events(self) -> bool:
        """Whether it or a child of it records an event."""
        return bool(self.events) or any(child.has_events() for child in self.children)

    def close(self) -> None:
        """Give up what the graph keeps alive; it can't be launched any more."""
        self.closed = True
        for array in self.arrays:
            array.base._graphs.discard(self)
        self.arrays.clear()
        self.handle = None


@dataclass(eq=False)
class GraphExec:
    """An instantiated graph."""

    graph: Graph
    handle: Any = None
    #: what each of the graph's event nodes records into at the next launch
    events: list[DeviceEvent] = field(default_factory=list)


def _in_a_row(items: Sequence[object]) -> list[tuple[int, ...]]:
    """Places by which each item waits for the one before it."""
    return [(i - 1,) if i else () for i in range(len(items))]


class _Fork:
    """Branches of a capture between fork and join: which were opened, and whether one is open.

    Attributes:
        noun: what they are called.
        background: how many, the last ones, have the device where the others leave it room.
        marked: the marks that stand behind work.
    """

    def __init__(self, count: int, noun: str = "branch", background: int = 0) -> None:
        self.count, self.noun, self.background = count, noun, background
        self.entered: set[int] = set()
        self.marked: set[int] = set()
        self.open = False

    @property
    def nouns(self) -> str:
        """Their name in the plural."""
        return f"{self.noun}{'es' if self.noun.endswith('ch') else 's'}"


class Lane(Protocol):
    """Opens a lane of a fork (`Device.lanes`)."""

    def __call__(
        self, index: int, after: Sequence[int] = (), mark: int | None = None
    ) -> AbstractContextManager[None]:
        """Open lane `index`: work inside waits for marks `after`, and is followed by `mark`."""


class Device(ABC):
    """A device with one training stream, and the ledger that counts what it is asked to do."""

    kind: Literal["host", "cuda"]
    name: str
    #: Whether a call hands its work over and returns, so that its own time is the host's.
    runs_later: bool = False
    #: Bytes that whoever fills the memory should leave for modules, graphs and workspaces.
    working_bytes: int = 0
    #: What decides how fast a kernel is, beside `name`: what times of kernels were taken on.
    platform: str = ""
    #: Blocks that a cluster has at most; 1: no clusters.
    largest_cluster: int = 1
    #: Bytes of shared memory that a block has at most, its kernel's own included.
    largest_shared: int = 48 * 1024

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger if ledger is not None else Ledger()
        #: ``(kernel, module) -> where it was launched``: "eager", "captured", "warm-up".
        self.launch_sites: dict[tuple[str, str], set[str]] = {}
        self.closed = False
        self._capture: Graph | None = None
        self._capture_broken = ""
        self._fork: _Fork | None = None
        self._reserved_branches = 0
        self._reserved_marks = 0
        self._warming_up = False
        #: What the host does while it waits for a loop (`attended`).
        self._meanwhile: Meanwhile | None = None

    # ---------------------------------------------------------------- errors and rules

    def fail(self, name: str, op: str, detail: str) -> NoReturn:
        """Raise `DeviceError` for `op` in the present phase; an open capture is now invalid."""
        if self._capture is not None:
            self._capture_broken = op
        raise DeviceError(name, op, self.ledger.phase, detail)

    def _open(self, op: str) -> None:
        if self.closed:
            self.fail(
                "CUDA_ERROR_CONTEXT_IS_DESTROYED",
                op,
                "the device was closed; close trainers, workspaces and arrays before it, or open"
                " another",
            )

    def _outside_capture(self, op: str) -> None:
        self._open(op)
        if self._capture is not None:
            self.fail(
                "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                op,
                f"not permitted while the stream is capturing graph {self._capture.label!r};"
                " do it before the capture, or keep the op out of the captured phase",
            )

    def _count(self, kind: str) -> None:
        self.ledger.count(kind if self._capture is None else "captured")

    def _record(self, kind: str, label: str, arrays: Sequence[DeviceArray]) -> None:
        if self._capture is not None:
            if self._fork is not None and not self._fork.open:
                self.fail(
                    "CUDA_ERROR_ILLEGAL_STATE", label, "the capture is forked; enter a branch"
                )
            self._capture.nodes.append(Node(kind, label))
            self._capture.uses(arrays)

    def _alive(self, op: str, *arrays: DeviceArray) -> None:
        self._open(op)
        for array in arrays:
            if array.base.freed:
                self.fail("CUDA_ERROR_ILLEGAL_ADDRESS", op, f"array {array.name!r} was freed")
            if array.device is not self:
                self.fail(
                    "CUDA_ERROR_INVALID_VALUE", op, f"array {array.name!r} is of another device"
                )

    # ---------------------------------------------------------------- memory

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: str | np.dtype[Any],
        name: str = "array",
        *,
        pinned: bool = False,
    ) -> DeviceArray:
        """Allocate `shape` elements of `dtype`, contents undefined (NaN on the host device).

        Raises:
            DeviceError: CUDA_ERROR_OUT_OF_MEMORY, with the bytes asked for.
        """
        op = f"allocate {name}"
        self._outside_capture(op)
        self.ledger.count("alloc")
        resolved = DTYPES[dtype] if isinstance(dtype, str) and dtype in DTYPES else np.dtype(dtype)
        return self._allocate(shape, resolved, name, pinned)

    def upload(self, values: NDArray[Any], name: str = "array") -> DeviceArray:
        """A new array that holds `values`."""
        array = self.allocate(values.shape, values.dtype, name)
        self.copy_htod(array, values)
        return array

    def free(self, array: DeviceArray) -> None:
        """Free an allocation. Freeing a view, twice, or under a live graph is an error.

        What was lent to another library (`DeviceArray.lent`) is let go of instead: its memory goes
        back when the last one who holds it drops it.
        """
        op = f"free {array.name}"
        self._outside_capture(op)
        if array.base is not array:
            self.fail("CUDA_ERROR_INVALID_VALUE", op, "this is a view; free its base")
        if array.freed:
            self.fail("CUDA_ERROR_INVALID_VALUE", op, "freed already")
        if live := sorted({graph.label for graph in array._graphs if not graph.closed}):
            names = ", ".join(map(repr, live))
            users = f"graph {names} still uses" if len(live) == 1 else f"graphs {names} still use"
            self.fail(
                "CUDA_ERROR_ILLEGAL_ADDRESS",
                op,
                f"{users} it and would replay over freed memory; close what uses it first",
            )
        self.ledger.count("free")
        self._free(array)
        array.freed = True

    def copy_htod(self, dst: DeviceArray, src: NDArray[Any]) -> None:
        """Copy `src` to the device; `src` may be reused at once."""
        op = f"copy_htod {dst.name}"
        self._outside_capture(op)
        self._alive(op, dst)
        self._same_size(op, dst, src)
        self.ledger.count("htod")
        self._copy_htod(dst, np.ascontiguousarray(src))

    def copy_dtoh(self, dst: NDArray[Any], src: DeviceArray) -> None:
        """Copy to `dst` and wait for it: one ``dtoh`` and one ``sync`` in the ledger."""
        op = f"copy_dtoh {src.name}"
        self._outside_capture(op)
        self._alive(op, src)
        self._same_size(op, src, dst)
        if not dst.flags.c_contiguous or not dst.flags.writeable:
            self.fail(
                "CUDA_ERROR_INVALID_VALUE", op, "the destination must be contiguous, writable"
            )
        self.ledger.count("dtoh")
        self.ledger.count("sync")
        self._copy_dtoh(dst, src)

    def copy_dtod(self, dst: DeviceArray, src: DeviceArray) -> None:
        """Copy on the device, in stream order."""
        op = f"copy_dtod {dst.name} <- {src.name}"
        self._alive(op, dst, src)
        if dst.size != src.size or dst.dtype != src.dtype:
            self.fail(
                "CUDA_ERROR_INVALID_VALUE", op, f"{list(src.shape)} does not fit {list(dst.shape)}"
            )
        self._count("dtod")
        self._record("memcpy", op, (dst, src))
        self._copy_dtod(dst, src)

    def memset(self, dst: DeviceArray) -> None:
        """Zero `dst` in stream order."""
        op = f"memset {dst.name}"
        self._alive(op, dst)
        self._count("memset")
        self._record("memset", op, (dst,))
        self._memset(dst)

    def memset_sync(self, dst: DeviceArray) -> None:
        """Zero `dst` through the blocking call, which the host waits for."""
        op = f"memset_sync {dst.name}"
        self._outside_capture(op)
        self._alive(op, dst)
        self.ledger.count("memset_sync")
        self.ledger.count("sync")
        self._memset(dst)
        self._synchronize()

    def _same_size(self, op: str, array: DeviceArray, host: NDArray[Any]) -> None:
        if host.size != array.size or host.dtype != array.dtype:
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"host array {list(host.shape)} {host.dtype} against device array"
                f" {list(array.shape)} {array.dtype}",
            )

    # ---------------------------------------------------------------- kernels

    def prepare(
        self,
        kernel: str,
        args: Mapping[str, DeviceArray | int | float],
        *,
        module: Module = "shared",
        max_blocks: int = MAX_BLOCKS,
    ) -> Launch:
        """Check `args` against the kernel's declared signature and fix its launch shape.

        Raises:
            KernelArgumentError: a missing, unknown or ill-typed argument, by name.
        """
        spec = find(kernel)
        bound = self._bind(spec, args, max_blocks)
        payload = self._prepare(spec, bound.args, bound.scalars, bound.blocks, module)
        return Launch(spec, module, bound.blocks, bound.arrays, payload)

    def _bind(
        self, spec: KernelSpec, args: Mapping[str, DeviceArray | int | float], max_blocks: int
    ) -> Binding:
        kernel, names = spec.name, [p.name for p in spec.params]
        if unknown := [a for a in args if a not in names]:
            raise KernelArgumentError(
                f"kernel {kernel}: no parameter {unknown[0]!r}; it takes {', '.join(names)}"
            )
        arrays: list[DeviceArray] = []
        scalars: dict[str, int | float] = {}
        for param in spec.params:
            if param.name not in args:
                raise KernelArgumentError(f"kernel {kernel}: argument {param.name!r} is missing")
            value = args[param.name]
            if param.is_pointer:
                if not isinstance(value, DeviceArray):
                    raise KernelArgumentError(
                        f"kernel {kernel}: {param.name} takes a device array, got {value!r}"
                    )
                if value.dtype != DTYPES[param.dtype]:
                    raise KernelArgumentError(
                        f"kernel {kernel}: {param.name} takes {param.dtype}, got {value!r}"
                    )
                self._alive(f"launch {kernel}", value)
                arrays.append(value)
            else:
                scalars[param.name] = self._scalar(kernel, param.name, param.dtype, value)
        blocks = spec.capped(spec.blocks(scalars), max_blocks, scalars)
        return Binding(args, tuple(arrays), scalars, blocks)

    @staticmethod
    def _scalar(kernel: str, name: str, dtype: str, value: object) -> int | float:
        if isinstance(value, (bool, int, np.integer)) and not dtype.startswith("f"):
            info = np.iinfo(DTYPES[dtype])
            if not info.min <= int(value) <= info.max:
                raise KernelArgumentError(f"kernel {kernel}: {name} = {value} exceeds {dtype}")
            return int(value)
        if isinstance(value, (int, float, np.floating, np.integer)) and dtype.startswith("f"):
            return float(value)
        raise KernelArgumentError(f"kernel {kernel}: {name} takes a {dtype}, got {value!r}")

    def launch(self, launch: Launch) -> None:
        """Launch a prepared kernel in stream order, or record it while capturing."""
        name = launch.spec.name
        if self.closed or any(array.base.freed for array in launch.arrays):
            self._alive(f"launch {name}", *launch.arrays)
        self._check_module(name, launch.module)
        self._count("launch")
        self._record("kernel", name, launch.arrays)
        self._launch(launch)

    def prepare_group(
        self,
        kernel: str,
        members: Sequence[Mapping[str, DeviceArray | int | float]],
        *,
        module: Module = "shared",
        max_blocks: int = MAX_BLOCKS,
    ) -> LaunchGroup:
        """Check the arguments of each of `members`, launches of `kernel` that one launch is to do.

        Args:
            kernel: one whose launches can be one (`onegraph.kernels.launch_group.obstacle`).
            members: 2 to 8 times its arguments. None may write what another reads or writes.
            module: as in `prepare`.
            max_blocks: of each member.

        Raises:
            KernelArgumentError: as `prepare`.
            DeviceError: CUDA_ERROR_NOT_SUPPORTED for a kernel that can't, CUDA_ERROR_INVALID_VALUE
                for too few or too many members, or two of which one writes what the other touches.
        """
        spec = find(kernel)
        op = f"launch {len(members)} of {kernel} at once"
        if why := obstacle(spec):
            self.fail("CUDA_ERROR_NOT_SUPPORTED", op, f"{why}; launch them one by one")
        if not 2 <= len(members) <= most_members(spec):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"a group of it has 2 to {most_members(spec)} members, got {len(members)}",
            )
        bound = tuple(self._bind(spec, args, max_blocks) for args in members)
        self._require_apart(op, spec, bound)
        return LaunchGroup(spec, module, bound, self._prepare_group(spec, bound, module))

    def _require_apart(self, op: str, spec: KernelSpec, members: Sequence[Binding]) -> None:
        """Refuse two members of which one writes what the other reads or writes."""
        pointers = [p for p in spec.params if p.is_pointer]
        for one in members:
            for param, written in zip(pointers, one.arrays, strict=True):
                if param.access == "in":
                    continue
                others = (a for other in members if other is not one for a in other.arrays)
                if any(written.overlaps(array) for array in others):
                    self.fail(
                        "CUDA_ERROR_INVALID_VALUE",
                        op,
                        f"one writes {written.name!r} by {param.name}, which another touches too;"
                        " launch one after the other",
                    )

    def launch_group(self, group: LaunchGroup) -> None:
        """Do the launches of a prepared group by one, or record it while capturing.

        A group is one ``launch`` in the ledger and one node of a graph.
        """
        name, arrays = group.name, group.arrays
        self._alive(f"launch {name}", *arrays)
        self._check_module(name, group.module)
        self._count("launch")
        self._record("kernel", name, arrays)
        self._launch_group(group)

    def run(
        self,
        kernel: str,
        *,
        module: Module = "shared",
        max_blocks: int = MAX_BLOCKS,
        **args: DeviceArray | int | float,
    ) -> None:
        """Prepare and launch at once."""
        self.launch(self.prepare(kernel, args, module=module, max_blocks=max_blocks))

    def matmul(
        self,
        spec: Matmul,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        extra: DeviceArray | None = None,
        *,
        module: Module = "shared",
    ) -> None:
        """``out = epilogue(op(a) @ op(b))`` (see `Matmul`), by an algorithm fixed per shape."""
        op = f"matmul {out.name}"
        product = Product(spec, a, b, out, extra)
        self._check_product(op, product)
        self._check_module(f"matmul[{spec.m}x{spec.n}x{spec.k}]", module)
        self._count("matmul")
        self._record("matmul", op, product.operands)
        self._matmul(spec, a, b, out, extra, module)

    def matmul_group(self, members: Sequence[Product], *, module: Module = "shared") -> None:
        """The products of `members` by one launch; none may write what another reads or writes.

        A group is one ``matmul`` in the ledger and one node of a graph. It has two products or
        more, of which a launch takes up to four; such as are one by their rows count once
        (`onegraph.kernels.learner.row_stacks`).
        """
        op = f"matmul {', '.join(p.out.name for p in members)}"
        for product in members:
            self._check_product(op, product)
        count = len(stacks([p.rows for p in members]))
        if len(members) < 2 or count > gemm_group.MEMBERS:
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"a group has 2 to {gemm_group.MEMBERS} products, got {count}",
            )
        sizes = ", ".join(f"{p.spec.m}x{p.spec.n}x{p.spec.k}" for p in members)
        self._check_module(f"matmul[{sizes}]", module)
        self._count("matmul")
        self._record("matmul", op, [array for p in members for array in p.operands])
        self._matmul_group(members, module)

    def _check_product(self, op: str, product: Product) -> None:
        spec, extra = product.spec, product.extra
        self._alive(op, *product.operands)
        sizes = (spec.m * spec.k, spec.k * spec.n, spec.m * spec.n, spec.extra_size)
        arrays = (product.a, product.b, product.out)
        given = (*(x.size for x in arrays), 0 if extra is None else extra.size)
        if spec.epilogue == "bias_grad" and spec.trans_b:
            self.fail("CUDA_ERROR_INVALID_VALUE", op, f"{spec}: bias_grad needs b as it is stored")
        if sizes != given or any(x.dtype != DTYPES["f32"] for x in product.operands):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"{spec} needs float32 a, b, out, extra of {sizes} elements, got {given}",
            )

    def matmul_launches(self, spec: Matmul) -> tuple[int, int]:
        """The fewest and the most kernels that one `matmul` of this shape launches.

        A `matmul_group` is always one.
        """
        return 1, 1

    def matmul_memsets(self, spec: Matmul) -> int:
        """The most memsets that one `matmul` of this shape issues beside its kernels."""
        return 0

    def _check_module(self, kernel: str, module: Module) -> None:
        """Two copies of each kernel: one for graphs, one for launches outside them.

        The third plan asks for the separation because it suspects that mixing both from one
        CUmodule slows graphs down. An A/B on an H200 (driver 580, a graph of 100 nodes, one
        ungraphed launch beside it) saw no difference: 79.4 us with the same module, another
        module, and the very same function. What the separation does keep apart is function
        attributes and module lifetimes.
        """
        place = "captured" if self._capture is not None else "eager"
        if place == "eager" and self._warming_up:
            place = "warm-up"
        wrong = {"graphed": "eager", "ungraphed": "captured", "shared": ""}[module]
        if place == wrong:
            self._refuse_module(kernel, module, place)
        self.launch_sites.setdefault((kernel, module), set()).add(place)

    def _refuse_module(self, kernel: str, module: Module, place: str) -> NoReturn:
        if self._capture is not None:
            self._capture_broken = kernel
        raise ModuleMixError(
            "CUDA_ERROR_NOT_PERMITTED",
            f"launch {kernel}",
            self.ledger.phase,
            f"its {module} module may not be launched {place}; the graphed copy belongs in"
            " captures and their warm-up, the ungraphed copy outside graphs",
        )

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Launches inside may use the graphed module outside a graph, to load and plan it."""
        before, self._warming_up = self._warming_up, True
        try:
            yield
        finally:
            self._warming_up = before

    # ---------------------------------------------------------------- order and time

    def synchronize(self) -> None:
        """Wait for everything asked of the training stream."""
        self._outside_capture("synchronize")
        self.ledger.count("sync")
        self._synchronize()

    def host_op(self, label: str) -> None:
        """Say that host code runs here as part of a step; refused while capturing.

        A captured host op would run once, at capture, and its result be baked into the graph.
        """
        self._outside_capture(f"host {label}")
        self.ledger.count("host")

    def create_event(self, label: str = "") -> DeviceEvent:
        """An event that can be timed."""
        self._outside_capture("create_event")
        return self._create_event(label)

    def record_event(self, event: DeviceEvent) -> None:
        """Record `event` in stream order. In a graph, compose it as a node instead."""
        self._outside_capture(f"record_event {event.label}")
        self.ledger.count("event_record")
        self._record_event(event)

    def elapsed_ms(self, start: DeviceEvent, end: DeviceEvent) -> float:
        """Milliseconds between two recorded events; waits for the later one."""
        self._outside_capture("elapsed_ms")
        return self._elapsed_ms(start, end)

    @abstractmethod
    def create_stream(self, label: str = "") -> Stream:
        """A further stream beside the training stream."""

    @contextmanager
    @abstractmethod
    def on(self, stream: Stream) -> Iterator[None]:
        """Issue what is asked inside on `stream`, ordered after and before the training stream."""

    # ---------------------------------------------------------------- graphs

    @contextmanager
    def capture(self, label: str) -> Iterator[Graph]:
        """Record what is asked inside, instead of doing it, into the graph that is yielded.

        Raises:
            DeviceError: at once for a call that CUDA forbids while capturing; and at the end,
                CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, if such an error was swallowed inside.
        """
        self._outside_capture(f"capture {label}")
        self.ledger.count("capture")
        graph = Graph(label)
        self._begin_capture(graph)
        self._capture, self._capture_broken = graph, ""
        try:
            yield graph
            if self._fork is not None:
                self.fail(
                    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
                    f"capture {label}",
                    f"its {self._fork.count} {self._fork.nouns} are not joined; leave the block"
                    " that forked before it",
                )
        except BaseException:
            self._capture = None
            if self._fork is not None:
                self._fork = None
                with suppress(DeviceError):  # the error inside is the one to show
                    self._join()
            self._abandon_capture(graph)
            graph.close()
            raise
        broken, self._capture = self._capture_broken, None
        if broken:
            self._abandon_capture(graph)
            graph.close()
            self.fail(
                "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
                f"capture {label}",
                f"{broken!r} was refused inside, so the graph is not complete",
            )
        self._end_capture(graph)

    def reserve_branches(self, products: Sequence[Sequence[Matmul]], marks: int = 0) -> None:
        """Get ready what `branches` and `lanes` need while capturing, where nothing may be made.

        Args:
            products: the matrix products of each: those of cuBLASLt take a workspace each.
            marks: that lanes wait for.
        """
        op = f"reserve {len(products)} branches"
        self._outside_capture(op)
        self._reserved_branches = max(self._reserved_branches, len(products))
        self._reserved_marks = max(self._reserved_marks, marks)
        self._reserve_branches(op, products, marks)

    @contextmanager
    def branches(self, count: int) -> Iterator[Callable[[int], AbstractContextManager[None]]]:
        """Fork a capture into `count` branches, which run side by side, and join them.

        What is yielded opens a branch, by its index: ``with branch(0): ...``. What is asked inside
        waits for what came before the fork, and what comes after the join for all branches; no
        branch may write what another one reads or writes. A branch is opened once, and not inside
        another one.

        Raises:
            DeviceError: CUDA_ERROR_ILLEGAL_STATE outside a capture, in a fork, or for work
                outside a branch; CUDA_ERROR_INVALID_VALUE for fewer than two branches, or an index
                that there is not, or not any more; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for more
                branches than `reserve_branches` was told of; at the end of the capture,
                CUDA_ERROR_STREAM_CAPTURE_UNJOINED if this was not left.
        """
        with self._forked(_Fork(count)):
            yield self._branch

    @contextmanager
    def lanes(self, count: int, marks: int = 0, background: int = 0) -> Iterator[Lane]:
        """Fork a capture into `count` lanes that wait for pieces of one another, and join them.

        What is yielded opens a lane, by its index, as often as there is work for it. Work waits for
        what was asked in its lane before, for what came before the fork, and for the work behind
        which the marks stand that it names: ``with lane(1, after=[0], mark=1): ...``. A mark is set
        once, and before it is waited for. What comes after the join waits for all lanes. A lane is
        not opened inside another one.

        Args:
            count: 2 or more.
            marks: numbers below this are marks.
            background: the last so many lanes have the GPU where the others leave it room: up to
                `BACKGROUND_LANES`, and not all.

        Raises:
            DeviceError: as for `branches`; CUDA_ERROR_INVALID_VALUE also for a mark that there is
                not, that is set already, or that is waited for before it is set, and for another
                number of lanes in the background.
        """
        fork = _Fork(count, "lane", background)
        with self._forked(fork, marks):

            @contextmanager
            def lane(
                index: int, after: Sequence[int] = (), mark: int | None = None
            ) -> Iterator[None]:
                op = f"lane {index}"
                self._require_marks(op, fork, after, mark, marks)
                with self._entered(op, index):
                    for awaited in after:
                        self._await_mark(awaited)
                    yield
                    if mark is not None and self._fork is fork:
                        self._set_mark(mark)
                        fork.marked.add(mark)

            yield lane

    def _require_marks(
        self, op: str, fork: _Fork, after: Sequence[int], mark: int | None, marks: int
    ) -> None:
        if unset := [m for m in after if m not in fork.marked]:
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"mark {unset[0]} is not set, and can't be waited for; set it behind work before",
            )
        if mark is not None and (mark in fork.marked or not 0 <= mark < marks):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"mark {mark} is none of the {marks} that there are, each to be set once",
            )

    @contextmanager
    def _forked(self, fork: _Fork, marks: int = 0) -> Iterator[None]:
        op, count = f"fork into {fork.count} {fork.nouns}", fork.count
        self._open(op)
        if self._capture is None:
            self.fail("CUDA_ERROR_ILLEGAL_STATE", op, "only a capture forks; begin one before it")
        if self._fork is not None:
            self.fail("CUDA_ERROR_ILLEGAL_STATE", op, "the capture is forked already; join first")
        if count < 2:
            self.fail("CUDA_ERROR_INVALID_VALUE", op, f"there are two {fork.nouns} at least")
        if not 0 <= fork.background <= min(BACKGROUND_LANES, count - 1):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"{fork.background} of the lanes are in the background; {BACKGROUND_LANES} may be,"
                " and not all",
            )
        if count > self._reserved_branches:
            self._outside_capture(f"reserve {count} branches")
        if marks > self._reserved_marks:
            self._outside_capture(f"reserve {marks} marks")
        self._branch_out(count, fork.background)
        self._fork = fork
        try:
            yield
        except BaseException:
            if self._fork is fork:
                self._fork = None
                with suppress(DeviceError):  # the error inside is the one to show
                    self._join()
            raise
        if self._fork is fork:
            self._fork = None
            self._join()

    @contextmanager
    def _branch(self, index: int) -> Iterator[None]:
        fork, op = self._fork, f"branch {index}"
        if fork is not None and index in fork.entered and not fork.open:
            self._no_such(op, fork)
        with self._entered(op, index):
            yield

    @contextmanager
    def _entered(self, op: str, index: int) -> Iterator[None]:
        fork = self._fork
        if fork is None or fork.open:
            self.fail(
                "CUDA_ERROR_ILLEGAL_STATE",
                op,
                "the branches are joined" if fork is None else f"another {fork.noun} is open",
            )
        if not 0 <= index < fork.count:
            self._no_such(op, fork)
        fork.entered.add(index)
        fork.open = True
        self._enter_branch(index)
        try:
            yield
        finally:
            fork.open = False
            if self._fork is fork:
                self._leave_branch()

    def _no_such(self, op: str, fork: _Fork) -> NoReturn:
        once = ", each to be opened once" if fork.noun == "branch" else ""
        self.fail(
            "CUDA_ERROR_INVALID_VALUE",
            op,
            f"there are {fork.nouns} 0 to {fork.count - 1}{once}",
        )

    def compose(
        self,
        label: str,
        items: Sequence[Graph | DeviceEvent],
        after: Sequence[Sequence[int]] | None = None,
    ) -> Graph:
        """One graph that runs `items` in order: graphs as children, events as record nodes.

        Args:
            label: the graph's name.
            items: what it is of.
            after: of each item the places of those before it that it waits for, where that is not
                the one before it. Then there are no events, which would be in no order.

        Raises:
            DeviceError: CUDA_ERROR_INVALID_HANDLE for a closed graph, CUDA_ERROR_NOT_SUPPORTED for
                one that loops, CUDA_ERROR_INVALID_VALUE for places that do not fit the items.
        """
        op = f"compose {label}"
        self._outside_capture(op)
        self._require_parts(op, [g for g in items if isinstance(g, Graph)])
        self._require_order(op, items, after)
        graph = Graph(label)
        for item in items:
            if isinstance(item, Graph):
                graph.children.append(item)
                graph.uses(item.arrays)
            else:
                graph.nodes.append(Node("event_record", item.label))
                graph.events.append(item)
        self._compose(graph, items, _in_a_row(items) if after is None else after)
        return graph

    def _require_order(
        self,
        op: str,
        items: Sequence[Graph | DeviceEvent],
        after: Sequence[Sequence[int]] | None,
    ) -> None:
        if after is None:
            return
        if any(isinstance(item, DeviceEvent) for item in items):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                "events stand between items in a row; leave them out, or the order",
            )
        if len(after) != len(items) or any(
            not 0 <= place < i for i, places in enumerate(after) for place in places
        ):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"{[list(places) for places in after]} are not the places of items before each of"
                f" the {len(items)}",
            )

    def _require_parts(self, op: str, graphs: Sequence[Graph]) -> None:
        if closed := [g.label for g in graphs if g.closed]:
            self.fail("CUDA_ERROR_INVALID_HANDLE", op, f"{closed[0]!r} is closed")
        if loops := [g.label for g in graphs if g.loops]:
            self.fail(
                "CUDA_ERROR_NOT_SUPPORTED",
                op,
                f"{loops[0]!r} has a conditional node, which can't stand in a child graph; launch"
                " it by itself",
            )

    def loop(
        self,
        label: str,
        turn: Sequence[Graph],
        control: Launch,
        go: DeviceArray,
        after: Sequence[Sequence[int]] | None = None,
    ) -> Graph:
        """One graph that takes turns: `control`, then while `go` is not 0 the `turn` and `control`.

        Args:
            label: the graph's name.
            turn: graphs that run in order, once a turn; the same one may stand there twice.
            control: a kernel that writes `go`, and gives its value to the condition whose handle it
                gets by its parameter ``condition`` (u64). Outside a graph that is 0.
            go: int32 [1], among the arrays of `control`. (A GPU looks at the condition alone.)
            after: of each graph of the turn the places of those before it that it waits for, where
                that is not the one before it.

        Raises:
            DeviceError: CUDA_ERROR_NOT_SUPPORTED for what the body of a conditional node can't
                hold (event records, further loops); CUDA_ERROR_INVALID_VALUE for a turn without
                work, places that do not fit it, or a `control` that can't end it;
                CUDA_ERROR_INVALID_HANDLE for a closed graph.
        """
        op = f"loop {label}"
        self._outside_capture(op)
        self._alive(op, go, *control.arrays)
        self._require_parts(op, turn)
        self._require_order(op, turn, after)
        if timed := [g.label for g in turn if g.has_events()]:
            self.fail(
                "CUDA_ERROR_NOT_SUPPORTED",
                op,
                f"{timed[0]!r} records an event, which the body of a conditional node can't; time"
                " steps outside the loop",
            )
        if not sum(g.node_count() for g in turn):
            self.fail("CUDA_ERROR_INVALID_VALUE", op, "a turn has no work")
        kernel, handles = control.spec.name, [p for p in control.spec.params if p.name == CONDITION]
        if [(p.dtype, p.access) for p in handles] != [("u64", "scalar")]:
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"kernel {kernel} takes no condition; declare {CONDITION}='u64' and set it",
            )
        if (go.size, go.dtype) != (1, DTYPES["i32"]) or all(
            a.base is not go.base for a in control.arrays
        ):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE", op, f"{go!r} is not the one int32 that {kernel} writes"
            )
        if control.module == "ungraphed":
            self._refuse_module(kernel, control.module, "captured")
        self.launch_sites.setdefault((kernel, control.module), set()).add("captured")
        graph = Graph(label, loops=True)
        graph.nodes += [Node("kernel", kernel)] * 2
        for part in turn:
            graph.children.append(part)
            graph.uses(part.arrays)
        graph.uses((*control.arrays, go))
        self._loop(graph, turn, control, go, _in_a_row(turn) if after is None else after)
        return graph

    @contextmanager
    def attended(self, meanwhile: Meanwhile) -> Iterator[None]:
        """Wait at the end for what was launched inside, and call `meanwhile` now and then.

        On a GPU `meanwhile` is called from the end of the block on, until the device has nothing to
        do; the host sleeps in between, as long as `meanwhile` lets it expect to wait and 50 ms at
        most (`onegraph.kernels.device.naps`). The host device calls it after
        each turn of a loop. It may look at pinned memory, and may not ask the device for anything.
        """
        self._outside_capture("attend")
        before, self._meanwhile = self._meanwhile, meanwhile
        try:
            yield
            self._attend(meanwhile)
        finally:
            self._meanwhile = before

    def instantiate(self, graph: Graph) -> GraphExec:
        """Instantiate and upload, so that the first launch costs what the others do."""
        self._outside_capture(f"instantiate {graph.label}")
        if graph.closed:
            self.fail("CUDA_ERROR_INVALID_HANDLE", f"instantiate {graph.label}", "it is closed")
        self.ledger.count("instantiate")
        executable = GraphExec(graph, events=list(graph.events))
        self._instantiate(executable)
        return executable

    def graph_launch(self, executable: GraphExec) -> None:
        """Launch an instantiated graph in stream order."""
        self._outside_capture(f"graph_launch {executable.graph.label}")
        if executable.graph.closed:
            self.fail(
                "CUDA_ERROR_INVALID_HANDLE",
                f"graph_launch {executable.graph.label}",
                "its buffers were given up; capture it again",
            )
        self.ledger.count("graph_launch")
        self._graph_launch(executable)

    def set_graph_events(self, executable: GraphExec, events: Sequence[DeviceEvent]) -> None:
        """Make the graph's event nodes record into `events` from the next launch on."""
        op = f"set_graph_events {executable.graph.label}"
        self._outside_capture(op)
        if len(events) != len(executable.events):
            self.fail(
                "CUDA_ERROR_INVALID_VALUE",
                op,
                f"{len(events)} events for {len(executable.events)} event nodes",
            )
        for index, event in enumerate(events):
            self.ledger.count("event_set")
            self._set_graph_event(executable, index, event)
            executable.events[index] = event

    def facts(self) -> DeviceFacts | None:
        """What peaks follow from; ``None`` for a device that has none of its own, as the host."""
        return None

    def graph_dot(self, graph: Graph) -> str:
        """The graph as its driver draws it, in Graphviz's DOT; empty where there is no driver."""
        del graph
        return ""

    # ---------------------------------------------------------------- lifetime

    def close(self) -> None:
        """Wait, then release what the device holds beyond its arrays. Safe to call twice.

        Every later call but this one is refused; graphs that are still open can be closed.
        """
        if not self.closed:
            self._outside_capture("close")
            self._close()
            self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---------------------------------------------------------------- what a device implements

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def memory_free(self) -> int:
        """Bytes that can still be allocated, as the device reports them."""

    @abstractmethod
    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, pinned: bool
    ) -> DeviceArray: ...

    @abstractmethod
    def _free(self, array: DeviceArray) -> None: ...

    def _stream_pointer(self) -> int:
        """Address of the training stream."""
        raise NotImplementedError(f"{self.kind} has no stream that others could wait for")

    def _dlpack(self, array: DeviceArray, **options: Any) -> Any:
        """A capsule of an array that the host does not see."""
        raise NotImplementedError(f"every array of {self.kind} is the host's")

    def _dlpack_device(self) -> tuple[int, int]:
        """DLPack's kind and index of this device."""
        return 1, 0

    @abstractmethod
    def _copy_htod(self, dst: DeviceArray, src: NDArray[Any]) -> None: ...

    @abstractmethod
    def _copy_dtoh(self, dst: NDArray[Any], src: DeviceArray) -> None: ...

    @abstractmethod
    def _copy_dtod(self, dst: DeviceArray, src: DeviceArray) -> None: ...

    @abstractmethod
    def _memset(self, dst: DeviceArray) -> None: ...

    @abstractmethod
    def _prepare(
        self,
        spec: KernelSpec,
        args: Mapping[str, DeviceArray | int | float],
        scalars: Mapping[str, int | float],
        blocks: int,
        module: Module,
    ) -> Any: ...

    @abstractmethod
    def _launch(self, launch: Launch) -> None: ...

    @abstractmethod
    def _prepare_group(
        self, spec: KernelSpec, members: Sequence[Binding], module: Module
    ) -> Any: ...

    @abstractmethod
    def _launch_group(self, group: LaunchGroup) -> None: ...

    @abstractmethod
    def _matmul(
        self,
        spec: Matmul,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        extra: DeviceArray | None,
        module: Module,
    ) -> None: ...

    @abstractmethod
    def _matmul_group(self, members: Sequence[Product], module: Module) -> None: ...

    @abstractmethod
    def _synchronize(self) -> None: ...

    @abstractmethod
    def _create_event(self, label: str) -> DeviceEvent: ...

    @abstractmethod
    def _record_event(self, event: DeviceEvent) -> None: ...

    @abstractmethod
    def _elapsed_ms(self, start: DeviceEvent, end: DeviceEvent) -> float: ...

    @abstractmethod
    def _begin_capture(self, graph: Graph) -> None: ...

    @abstractmethod
    def _end_capture(self, graph: Graph) -> None: ...

    @abstractmethod
    def _abandon_capture(self, graph: Graph) -> None: ...

    @abstractmethod
    def _reserve_branches(
        self, op: str, products: Sequence[Sequence[Matmul]], marks: int
    ) -> None: ...

    @abstractmethod
    def _branch_out(self, count: int, background: int) -> None: ...

    @abstractmethod
    def _enter_branch(self, index: int) -> None: ...

    @abstractmethod
    def _leave_branch(self) -> None: ...

    @abstractmethod
    def _set_mark(self, mark: int) -> None: ...

    @abstractmethod
    def _await_mark(self, mark: int) -> None: ...

    @abstractmethod
    def _join(self) -> None: ...

    @abstractmethod
    def _compose(
        self,
        graph: Graph,
        items: Sequence[Graph | DeviceEvent],
        after: Sequence[Sequence[int]],
    ) -> None: ...

    @abstractmethod
    def _loop(
        self,
        graph: Graph,
        turn: Sequence[Graph],
        control: Launch,
        go: DeviceArray,
        after: Sequence[Sequence[int]],
    ) -> None: ...

    @abstractmethod
    def _attend(self, meanwhile: Meanwhile) -> None: ...

    @abstractmethod
    def _instantiate(self, executable: GraphExec) -> None: ...

    @abstractmethod
    def _graph_launch(self, executable: GraphExec) -> None: ...

    @abstractmethod
    def _set_graph_event(self, executable: GraphExec, index: int, event: DeviceEvent) -> None: ...
