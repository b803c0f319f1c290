"""`HostDevice`: the device that a laptop has. It runs the NumPy twins under CUDA's rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import DTYPES, KernelSpec
from onegraph.kernels.device.base import (
    Binding,
    Device,
    DeviceArray,
    DeviceEvent,
    Graph,
    GraphExec,
    Launch,
    LaunchGroup,
    Matmul,
    Meanwhile,
    Module,
    Product,
    Stream,
)
from onegraph.kernels.device.ledger import Ledger
from onegraph.kernels.launch_group import group_name

Work = Callable[[], None]


class HostDevice(Device):
    """NumPy behind the `Device` protocol: arrays are host arrays, graphs are lists of calls.

    Args:
        memory_bytes: what may be allocated at once, to rehearse a small device; 0 means no limit.
    """

    kind = "host"
    # A twin has no blocks and takes any shape; these are what GPUs from Hopper on have.
    largest_cluster = 8
    largest_shared = 227 * 1024
    name = "NumPy"

    def __init__(self, ledger: Ledger | None = None, *, memory_bytes: int = 0) -> None:
        super().__init__(ledger)
        self._memory_bytes = memory_bytes
        self._allocated = 0
        self._loaded: set[tuple[str, bool]] = set()

    def _close(self) -> None:
        """Nothing to release: NumPy's arrays go when nobody holds them."""

    def memory_free(self) -> int:
        return self._memory_bytes - self._allocated if self._memory_bytes else 1 << 62

    def _do(self, work: Work) -> None:
        if self._capture is None:
            work()
        else:
            self._capture.handle.append(work)

    # ---------------------------------------------------------------- memory

    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, pinned: bool
    ) -> DeviceArray:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if nbytes > self.memory_free():
            self.fail(
                "CUDA_ERROR_OUT_OF_MEMORY",
                f"allocate {name}",
                f"{nbytes:,} bytes asked for, {self.memory_free():,} free",
            )
        # Undefined memory on a GPU is NaN and nonsense here, so that reading it shows.
        poison = np.nan if dtype.kind == "f" else np.frombuffer(b"\xa5" * 8, dtype=dtype)[0]
        try:
            host = np.full(shape, poison, dtype)
        except MemoryError:
            self.fail("CUDA_ERROR_OUT_OF_MEMORY", f"allocate {name}", f"{nbytes:,} bytes asked for")
        self._allocated += nbytes
        return DeviceArray(self, name, shape, dtype, host=host, pinned=pinned)

    def _free(self, array: DeviceArray) -> None:
        self._allocated -= array.nbytes
        array.host = None

    @staticmethod
    def _flat(array: DeviceArray) -> NDArray[Any]:
        assert array.host is not None
        return array.host.reshape(-1)

    def _copy_htod(self, dst: DeviceArray, src: NDArray[Any]) -> None:
        self._flat(dst)[:] = src.reshape(-1)

    def _copy_dtoh(self, dst: NDArray[Any], src: DeviceArray) -> None:
        dst.reshape(-1)[:] = self._flat(src)

    def _copy_dtod(self, dst: DeviceArray, src: DeviceArray) -> None:
        self._do(partial(np.copyto, self._flat(dst), self._flat(src)))

    def _memset(self, dst: DeviceArray) -> None:
        self._do(partial(self._flat(dst).fill, 0))

    # ---------------------------------------------------------------- kernels

    def _load(self, kernel: str, module: Module) -> None:
        """There is nothing to load, but a GPU would, and could not do so while capturing."""
        key = kernel, module == "graphed"
        if key not in self._loaded:
            self._outside_capture(f"load {kernel}")
            self.ledger.count("module_load")
            self._loaded.add(key)

    def _prepare(
        self,
        spec: KernelSpec,
        args: Mapping[str, DeviceArray | int | float],
        scalars: Mapping[str, int | float],
        blocks: int,
        module: Module,
    ) -> Any:
        del blocks
        self._load(spec.name, module)
        return self._call(spec, args, scalars)

    def _call(
        self,
        spec: KernelSpec,
        args: Mapping[str, DeviceArray | int | float],
        scalars: Mapping[str, int | float],
    ) -> Work:
        """The twin with its arguments."""
        bound: dict[str, Any] = {}
        for param in spec.params:
            value = args[param.name]
            if isinstance(value, DeviceArray):
                flat = self._flat(value)
                if param.access == "in":
                    flat = flat.view()
                    flat.flags.writeable = False
                bound[param.name] = flat
            else:
                bound[param.name] = DTYPES[param.dtype].type(scalars[param.name])
                if not param.dtype.startswith("f"):
                    bound[param.name] = int(bound[param.name])
        return partial(spec.twin, **bound)

    def _launch(self, launch: Launch) -> None:
        self._do(launch.payload)

    def _prepare_group(
        self, spec: KernelSpec, members: Sequence[Binding], module: Module
    ) -> tuple[Work, ...]:
        self._load(group_name(spec, len(members)), module)
        return tuple(self._call(spec, m.args, m.scalars) for m in members)

    def _launch_group(self, group: LaunchGroup) -> None:
        for call in group.payload:
            self._do(call)

    def _matmul(
        self,
        spec: Matmul,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        extra: DeviceArray | None,
        module: Module,
    ) -> None:
        self._load("gemm", module)
        self._do(self._multiplication(Product(spec, a, b, out, extra)))

    def _matmul_group(self, members: Sequence[Product], module: Module) -> None:
        self._load("gemm_group", module)
        for product in members:
            self._do(self._multiplication(product))

    def _multiplication(self, product: Product) -> Work:
        spec, a, b, out, extra = (
            product.spec,
            product.a,
            product.b,
            product.out,
            product.extra,
        )
        flat_a, flat_b = self._flat(a), self._flat(b)
        left = flat_a.reshape(spec.k, spec.m).T if spec.trans_a else flat_a.reshape(spec.m, spec.k)
        right = flat_b.reshape(spec.n, spec.k).T if spec.trans_b else flat_b.reshape(spec.k, spec.n)
        result = self._flat(out).reshape(spec.m, spec.n)
        other = None if extra is None else self._flat(extra)

        @np.errstate(all="ignore")  # a GPU does not warn of a NaN or an infinity either
        def multiply() -> None:
            np.matmul(left, right, out=result)
            if spec.epilogue in ("bias", "bias_relu"):
                assert other is not None
                np.add(result, other, out=result)
            if spec.epilogue == "bias_relu":
                # A NaN goes through, as it does on the device: it must reach the finite check.
                np.copyto(result, 0.0, where=result < 0.0)
            elif spec.epilogue == "bias_grad":
                assert other is not None
                np.sum(right, axis=0, out=other)
            elif spec.epilogue == "relu_grad":
                assert other is not None
                np.copyto(result, 0.0, where=~(other.reshape(spec.m, spec.n) > 0.0))

        return multiply

    # ---------------------------------------------------------------- order and time

    def _synchronize(self) -> None:
        pass

    def _create_event(self, label: str) -> DeviceEvent:
        return DeviceEvent(label)

    def _record_event(self, event: DeviceEvent) -> None:
        event.handle = time.perf_counter()

    def _elapsed_ms(self, start: DeviceEvent, end: DeviceEvent) -> float:
        for event in (start, end):
            if event.handle is None:
                self.fail(
                    "CUDA_ERROR_INVALID_HANDLE",
                    "elapsed_ms",
                    f"event {event.label!r} was never recorded",
                )
        return float(end.handle - start.handle) * 1e3

    def create_stream(self, label: str = "") -> Stream:
        self._outside_capture(f"create_stream {label}")
        return Stream(label)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        self._outside_capture(f"switch to stream {stream.label}")
        yield

    # ---------------------------------------------------------------- graphs

    def _begin_capture(self, graph: Graph) -> None:
        graph.handle = []

    def _end_capture(self, graph: Graph) -> None:
        pass

    def _abandon_capture(self, graph: Graph) -> None:
        pass

    # Branches and lanes are recorded in the order in which they are asked for their work. Any order
    # of branches is right, or they would be none; that of lanes is, because a mark is set before it
    # is waited for.

    def _reserve_branches(self, op: str, products: Sequence[Sequence[Matmul]], marks: int) -> None:
        pass

    def _branch_out(self, count: int, background: int) -> None:
        pass

    def _enter_branch(self, index: int) -> None:
        pass

    def _leave_branch(self) -> None:
        pass

    def _set_mark(self, mark: int) -> None:
        pass

    def _await_mark(self, mark: int) -> None:
        pass

    def _join(self) -> None:
        pass

    def _compose(
        self,
        graph: Graph,
        items: Sequence[Graph | DeviceEvent],
        after: Sequence[Sequence[int]],
    ) -> None:
        # One item is done after another: their order is one of those that `after` allows.
        # A child is copied in, as CUDA clones it; an event is looked up at replay, because
        # `set_graph_events` may have put another in its place.
        graph.handle = [list(i.handle) if isinstance(i, Graph) else i for i in items]

    def _loop(
        self,
        graph: Graph,
        turn: Sequence[Graph],
        control: Launch,
        go: DeviceArray,
        after: Sequence[Sequence[int]],
    ) -> None:
        # Read through the array at each turn; a child is copied in, as CUDA clones it.
        work = [w for part in turn for w in self._child_work(list(part.handle))]
        graph.handle = [partial(self._take_turns, control.payload, work, go)]

    def _take_turns(self, control: Work, turn: Sequence[Work], go: DeviceArray) -> None:
        control()
        while self._flat(go)[0]:
            for work in turn:
                work()
            control()
            if self._meanwhile is not None:
                self._meanwhile()

    def _attend(self, meanwhile: Meanwhile) -> None:
        """There is nothing to wait for: what was launched has run."""

    def _instantiate(self, executable: GraphExec) -> None:
        work: list[Work] = []
        index = 0
        for item in executable.graph.handle:
            if isinstance(item, list):
                work.extend(self._child_work(item))
            elif isinstance(item, DeviceEvent):
                work.append(partial(self._record_node, executable, index))
                index += 1
            else:
                work.append(item)
        executable.handle = work

    def _child_work(self, items: Sequence[Any]) -> Iterator[Work]:
        """A child's calls, flat; its own event nodes keep the events they were composed with."""
        for item in items:
            if isinstance(item, list):
                yield from self._child_work(item)
            else:
                yield partial(self._record_event, item) if isinstance(item, DeviceEvent) else item

    def _record_node(self, executable: GraphExec, index: int) -> None:
        self._record_event(executable.events[index])

    def _graph_launch(self, executable: GraphExec) -> None:
        for work in executable.handle:
            work()

    def _set_graph_event(self, executable: GraphExec, index: int, event: DeviceEvent) -> None:
        pass
