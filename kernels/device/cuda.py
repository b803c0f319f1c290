"""`CudaDevice`: the `Device` protocol on cuda.core, with cuda.bindings where it has no call.

Importing this needs the CUDA packages and no driver; opening a device needs both.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn
from weakref import WeakSet

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    Buffer,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ObjectCode,
    StreamOptions,
)
from cuda.core import Device as Gpu
from cuda.core import launch as enqueue

# cuda.core exports its exception under no public name.
from cuda.core._utils.cuda_utils import CUDAError
from cuda.core.graph import GraphCompleteOptions, GraphDefinition
from cuda.core.utils import StridedMemoryView
from numpy.typing import NDArray

from onegraph.kernels import compile as compiler
from onegraph.kernels.catalogue import CONDITION, DTYPES, KernelSpec, find
from onegraph.kernels.device import naps
from onegraph.kernels.device.base import (
    BACKGROUND_LANES,
    MAX_BLOCKS,
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
    stacked,
)
from onegraph.kernels.device.facts import DeviceFacts
from onegraph.kernels.device.ledger import Ledger
from onegraph.kernels.device.select import DeviceUnavailableError
from onegraph.kernels.launch_group import group_name, pack
from onegraph.kernels.learner import gemm, gemm_group, matmul, matmul_long

#: Of the training stream and what forks from it; a lane in the background has the lowest priority,
#: 0. A node of a graph keeps the priority of the stream that it was captured from.
_AHEAD = StreamOptions(priority=-1)

Gemm = Literal["auto", "kernel", "cublaslt"]

#: Checked matmul calls that are kept ready. A program has some dozens; scratch that is allocated
#: anew each step (stage 0) makes more of them, and then all are dropped.
_READY_MATMULS = 1024

#: Outputs of products with long sums whose scratch is kept, where nobody frees them.
_SCRATCHES = 256

#: Bytes of shared memory that a kernel may have without asking for more.
_STATIC_SHARED = 48 * 1024

_EPILOGUES = {
    "none": gemm.NONE,
    "bias": gemm.BIAS,
    "bias_relu": gemm.BIAS_RELU,
    "relu_grad": gemm.RELU_GRAD,
    "bias_grad": gemm.BIAS_GRAD,
}

#: DLPack's number for memory of a CUDA device (kDLCUDA).
_DLPACK_CUDA = 2

#: kernel, launch shape, typed arguments: what one launch takes
Call = tuple[Any, LaunchConfig, tuple[Any, ...]]

#: Builders whose capture the driver had invalidated. cuda.core 1.2 can crash when it takes one
#: down, so they are never taken down.
_invalidated: list[Any] = []

#: Devices that are capturing, innermost last. A call that another device of the process makes can
#: end a capture as well as one of its own.
_capturing: list[CudaDevice] = []

#: Buffers that were dropped inside a capture; they go when no device captures any more.
_late: list[Any] = []


class _Allocation:
    """A buffer, and the rule that it is not freed while any device captures.

    An array that is dropped inside a capture, and not freed, would put a free node into the graph
    (or, in pinned memory, invalidate it); its buffer waits for the end of the capture instead.
    """

    __slots__ = ("buffer",)

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def __del__(self) -> None:
        if _capturing:
            _late.append(self.buffer)


@dataclass
class _Built:
    """What a `Graph` holds on CUDA.

    Attributes:
        definition: cuda.core's graph.
        owner: the builder it was captured with, if it was captured.
        event_nodes: in the order of ``Graph.events``.
        turn: the body of the while-node, if it has one.
        modules: the device's loaded modules, which must outlive the graph.
    """

    definition: Any
    owner: Any
    modules: list[Any]
    event_nodes: list[Any] = field(default_factory=list)
    turn: Any = None


class CudaDevice(Device):
    """One NVIDIA GPU with one training stream.

    Args:
        ledger: counts the calls; a new one if not given.
        gemm: which code multiplies matrices. ``auto``: cuBLASLt where `matmul.is_large` says so and
            `Matmul.is_long` does not, and our kernels else, or our kernels alone where cuBLASLt is
            not installed (`matmul_backend` says which); ``kernel`` or ``cublaslt``: those always,
            but for groups of products, which are our kernels'. The choice depends on the shape
            alone, so that every stage computes the same bits.
        index: which GPU, as CUDA counts them.

    Raises:
        DeviceUnavailableError: no driver, no GPU, a GPU too old, or ``cublaslt`` without cuBLASLt.
    """

    kind = "cuda"
    runs_later = True
    #: Eight of cuBLASLt's workspaces, or that much of modules and graphs.
    working_bytes = 256 << 20

    def __init__(
        self, ledger: Ledger | None = None, *, gemm: Gemm = "auto", index: int = 0
    ) -> None:
        super().__init__(ledger)
        self._builder: Any = None
        if gemm not in ("auto", "kernel", "cublaslt"):
            raise ValueError(f"gemm {gemm!r} is unknown; choose auto, kernel or cublaslt")
        try:
            self._gpu = Gpu(index)
            self._gpu.set_current()
            capability = self._gpu.compute_capability
            self.arch = compiler.architecture(capability.major, capability.minor)
            self.name = str(self._gpu.name)
            self._stream: Any = self._gpu.create_stream(options=_AHEAD)
        except (RuntimeError, ValueError, CUDAError) as error:
            raise DeviceUnavailableError(
                f"GPU {index} can't be used: {str(error).rstrip('.')}; check that nvidia-smi"
                " lists it, or use --device host"
            ) from error
        self._memory: Any = self._gpu.memory_resource
        # What every GPU with clusters forms without being asked for more.
        self.largest_cluster = 8 if capability.major >= 9 else 1
        self.largest_shared = int(self._gpu.properties.max_shared_memory_per_block_optin)
        #: Multiprocessors of the GPU.
        self.multiprocessors = int(self._gpu.properties.multiprocessor_count)
        self._pinned: Any = LegacyPinnedMemoryResource()
        self._pinned_arrays: WeakSet[DeviceArray] = WeakSet()
        # Grace and the like may read pageable memory in place instead of staging it first.
        self._reads_pageable = bool(
            self._gpu.properties.pageable_memory_access_uses_host_page_tables
        )
        self._current: Any = self._stream
        self._target: Any = self._stream
        self._queue: Any = self._stream.handle
        # Where branches beside the first are captured, an event for their end, and one for a fork.
        self._sides: list[tuple[Any, Any]] = []
        # Those of lanes in the background, and those of the fork that is open, by lane.
        self._behind: list[tuple[Any, Any]] = []
        self._forked_sides: list[tuple[Any, Any]] = []
        self._forked_at: Any = None
        # Events for the ends of pieces of work that other lanes wait for.
        self._marks: list[Any] = []
        self._branch_index = 0
        self._collecting = False
        self._modules: list[Any] = []
        # By kernel, launches that it does at once, and whether it is the graphs' copy.
        self._kernels: dict[tuple[str, int, bool], Any] = {}
        self._matmuls: dict[tuple[Any, ...], tuple[Callable[[], None], ...]] = {}
        # Scratch and tickets of products with long sums, by where the first of a launch writes.
        self._scratches: dict[int, tuple[DeviceArray, DeviceArray]] = {}
        # Bytes of dynamic shared memory that a block of a function may have, where that was raised.
        self._shared_limits: dict[int, int] = {}
        self._workspaces: list[Any] = []
        self._gemm = gemm
        self._lt = self._open_cublaslt(gemm)
        driver_version = self._check(driver.cuDriverGetVersion(), "open")
        self.platform = (
            f"{self.arch}, {self.multiprocessors} multiprocessors, driver for CUDA"
            f" {driver_version // 1000}.{driver_version % 1000 // 10}, matmuls by"
            f" {self.matmul_backend}"
        )

    def _open_cublaslt(self, mode: Gemm) -> Any:
        #: what multiplies matrices, in words
        self.matmul_backend = "kernel"
        if mode == "kernel":
            return None
        try:
            from onegraph.kernels.device.cublaslt import CublasLt, CublasLtError
        except ImportError as error:
            return self._without_cublaslt(mode, error)
        try:
            lt = CublasLt(self._reserve)
            self.matmul_backend = f"{'kernel and ' if mode == 'auto' else ''}cuBLASLt {lt.version}"
        except (RuntimeError, CublasLtError) as error:
            return self._without_cublaslt(mode, error)
        return lt

    def _without_cublaslt(self, mode: Gemm, error: Exception) -> None:
        if mode == "cublaslt":
            raise DeviceUnavailableError(
                f"gemm='cublaslt' needs cuBLASLt ({error}); run pip install 'onegraph[cuda]', or"
                " use gemm='auto'"
            ) from error
        self.matmul_backend = f"kernel (no cuBLASLt: {error})"

    def _reserve(self, nbytes: int) -> int:
        buffer = self._memory.allocate(nbytes, stream=self._stream)
        self._workspaces.append(buffer)
        return int(buffer.handle)

    # ---------------------------------------------------------------- errors

    def _check(self, result: tuple[Any, ...], op: str) -> Any:
        """The value of a driver call, whose answer is ``(CUresult, *values)``."""
        code = result[0]
        if code != driver.CUresult.CUDA_SUCCESS:
            _, text = driver.cuGetErrorString(code)
            self.fail(str(code.name), op, text.decode() if text else "no description")
        return result[1] if len(result) == 2 else result[1:]

    def _translate(self, error: Exception, op: str, detail: str = "") -> NoReturn:
        """Raise cuda.core's or cuBLASLt's `error` as a `DeviceError` of the same name."""
        found = re.search(r"\b(?:CUDA_ERROR|CUBLAS_STATUS)_\w+", str(error))
        name = found.group() if found else "CUDA_ERROR_UNKNOWN"
        try:
            self.fail(name, op, f"{detail}: {error}" if detail else str(error))
        except RuntimeError as translated:
            raise translated from error

    # ---------------------------------------------------------------- memory

    def memory_free(self) -> int:
        """What the driver reports, and what our memory pool holds without using it."""
        free, _ = self._check(driver.cuMemGetInfo(), "memory_free")
        pool = getattr(self._memory, "attributes", None)
        idle = pool.reserved_mem_current - pool.used_mem_current if pool is not None else 0
        return int(free) + int(idle)

    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, pinned: bool
    ) -> DeviceArray:
        array = DeviceArray(self, name, shape, dtype, pinned=pinned)
        source = self._pinned if pinned else self._memory
        try:
            # At least one byte: an empty array has an address too.
            buffer = source.allocate(max(array.nbytes, 1), stream=self._current)
        except CUDAError as error:
            self._translate(
                error,
                f"allocate {name}",
                f"{array.nbytes:,} bytes asked for, {self.memory_free():,} free",
            )
        array.ptr = int(buffer.handle)
        array.keep = _Allocation(buffer)
        if pinned:
            # Its default would be the legacy stream, which does not wait for ours.
            buffer.set_deallocation_stream(self._current)
            raw: Any = (ctypes.c_uint8 * max(array.nbytes, 1)).from_address(array.ptr)
            raw.allocation = array.keep  # the view may outlive the array
            array.host = np.frombuffer(raw, np.uint8)[: array.nbytes].view(dtype).reshape(shape)
            self._pinned_arrays.add(array)
        return array

    def _free(self, array: DeviceArray) -> None:
        allocation = array.keep
        assert isinstance(allocation, _Allocation)
        self._drop_scratch(array)
        if array.lent:  # goes with the array, which whoever took the address holds
            return
        array.keep = array.host = None
        try:
            allocation.buffer.close(self._current)
        except CUDAError as error:
            self._translate(error, f"free {array.name}")

    def _stream_pointer(self) -> int:
        return int(self._stream.handle)

    def _dlpack_device(self) -> tuple[int, int]:
        return _DLPACK_CUDA, int(self._gpu.device_id)

    def _dlpack(self, array: DeviceArray, **options: Any) -> Any:
        # The taker's stream need not wait for what the host has waited for.
        if options.pop("stream", None) != -1:
            self.synchronize()
        if options.get("dl_device") == self._dlpack_device():  # cuda.core takes no such wish
            del options["dl_device"]
        # As a buffer of its own that holds the array, so that a view of an array is one as well.
        borrowed = Buffer.from_handle(array.ptr, max(array.nbytes, 1), owner=array)
        shaped = StridedMemoryView.from_buffer(borrowed, array.shape, dtype=array.dtype)
        return shaped.__dlpack__(stream=-1, **options)

    def _reads_in_place(self, address: int) -> bool:
        """Whether an asynchronous copy may still read host memory at `address` after the call."""
        return self._reads_pageable or any(
            not a.freed and a.ptr <= address < a.ptr + a.nbytes for a in self._pinned_arrays
        )

    def _copy_htod(self, dst: DeviceArray, src: NDArray[Any]) -> None:
        if not dst.nbytes:
            return
        op, address = f"copy_htod {dst.name}", src.ctypes.data
        self._check(driver.cuMemcpyHtoDAsync(dst.ptr, address, dst.nbytes, self._queue), op)
        if self._reads_in_place(address):
            self._check(driver.cuStreamSynchronize(self._queue), op)

    def _copy_dtoh(self, dst: NDArray[Any], src: DeviceArray) -> None:
        op = f"copy_dtoh {src.name}"
        if src.nbytes:
            address = dst.ctypes.data
            self._check(driver.cuMemcpyDtoHAsync(address, src.ptr, src.nbytes, self._queue), op)
        self._check(driver.cuStreamSynchronize(self._queue), op)

    def _copy_dtod(self, dst: DeviceArray, src: DeviceArray) -> None:
        if dst.nbytes:
            self._check(
                driver.cuMemcpyDtoDAsync(dst.ptr, src.ptr, dst.nbytes, self._queue),
                f"copy_dtod {dst.name} <- {src.name}",
            )

    def _memset(self, dst: DeviceArray) -> None:
        if dst.nbytes:
            self._check(
                driver.cuMemsetD8Async(dst.ptr, 0, dst.nbytes, self._queue), f"memset {dst.name}"
            )

    # ---------------------------------------------------------------- kernels

    def _load(self, spec: KernelSpec, *, graphed: bool, members: int = 1) -> Any:
        """The kernel from one of the two sets of modules: ``graphed``, or what serves the rest.

        With more `members` than one it is the kernel that does as many launches at once.
        """
        kernel = self._kernels.get((spec.name, members, graphed))
        if kernel is not None:
            return kernel
        name = spec.name if members == 1 else group_name(spec, members)
        op = f"load {name}"
        self._outside_capture(op)
        self.ledger.count("module_load")
        if members == 1:
            cubin = compiler.compile_kernel(spec, self.arch)
        else:
            cubin = compiler.compile_group(spec, members, self.arch)
        try:
            code = ObjectCode.from_cubin(cubin, name=f"{name}.cu")
            kernel = code.get_kernel(name)
        except CUDAError as error:
            self._translate(error, op)
        # The driver loads a function when it is first launched, and may not do so in a capture.
        function = self._check(driver.cuKernelGetFunction(kernel.handle), op)
        self._check(driver.cuFuncLoad(function), op)
        self._modules.append(code)
        self._kernels[spec.name, members, graphed] = kernel
        return kernel

    def _prepare(
        self,
        spec: KernelSpec,
        args: Mapping[str, DeviceArray | int | float],
        scalars: Mapping[str, int | float],
        blocks: int,
        module: Module,
    ) -> Call:
        kernel = self._load(spec, graphed=module == "graphed")
        values: list[Any] = []
        for param in spec.params:
            value = args[param.name]
            if isinstance(value, DeviceArray):
                values.append(value.ptr)
            else:
                values.append(DTYPES[param.dtype].type(scalars[param.name]))
        return kernel, self._shape(spec, kernel, scalars, blocks), tuple(values)

    def _shape(
        self, spec: KernelSpec, kernel: Any, scalars: Mapping[str, int | float], blocks: int
    ) -> LaunchConfig:
        """The launch's shape; a kernel's limit on dynamic shared memory is raised to what it asks.

        Raises:
            DeviceError: CUDA_ERROR_INVALID_VALUE for more shared memory than a block may have,
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE where not one block fits.
        """
        op = f"launch {spec.name}"
        shared = int(scalars[spec.shared]) if spec.shared else 0
        function = self._check(driver.cuKernelGetFunction(kernel.handle), op)
        self._allow_shared(function, shared, op)
        if spec.resident:
            held = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, spec.block, shared)
            most = int(self._check(held, op)) * self.multiprocessors
            if not most:
                self.fail(
                    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", op, "no block of it fits the GPU"
                )
            blocks = min(blocks, most)
        cluster = int(scalars[spec.cluster]) if spec.cluster else 0
        return LaunchConfig(
            grid=blocks // cluster if cluster else blocks,
            cluster=cluster if cluster > 1 else None,
            block=spec.block,
            shmem_size=shared,
            is_cooperative=spec.resident,
            programmatic_stream_serialization=spec.early,
        )

    def _allow_shared(self, function: Any, dynamic: int, op: str) -> None:
        """Raise the kernel's limit on dynamic shared memory where it needs that.

        What it has statically counts into what needs no raising. The limit is never lowered: a
        launch that was bound before may need more.
        """
        attributes = driver.CUfunction_attribute
        held = driver.cuFuncGetAttribute(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
        if dynamic + int(self._check(held, op)) <= _STATIC_SHARED:
            return
        if dynamic > self._shared_limits.get(int(function), 0):
            limit = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._check(driver.cuFuncSetAttribute(function, limit, dynamic), op)
            self._shared_limits[int(function)] = dynamic

    def _launch(self, launch: Launch) -> None:
        self._enqueue(launch.payload, launch.spec.name)

    def _enqueue(self, call: Call, name: str) -> None:
        kernel, config, values = call
        try:
            enqueue(self._target, config, kernel, *values)
        except CUDAError as error:
            self._translate(error, f"launch {name}")

    def _prepare_group(
        self, spec: KernelSpec, members: Sequence[Binding], module: Module
    ) -> Callable[[], None]:
        name = group_name(spec, len(members))
        kernel = self._load(spec, graphed=module == "graphed", members=len(members))
        function = self._check(driver.cuKernelGetFunction(kernel.handle), f"load {name}")
        values = [
            {k: v.ptr if isinstance(v, DeviceArray) else m.scalars[k] for k, v in m.args.items()}
            for m in members
        ]
        argument = pack(spec, values, [m.blocks for m in members])
        shape = sum(m.blocks for m in members), 1, 1, spec.block, 1, 1
        return partial(self._enqueue_group, name, function, shape, argument)

    def _launch_group(self, group: LaunchGroup) -> None:
        group.payload()

    def _enqueue_group(
        self, name: str, function: Any, shape: tuple[int, ...], argument: NDArray[Any]
    ) -> None:
        """Launch by the driver's call, which takes an argument's bytes as they lie there.

        It has copied them when it returns, in a capture into the node.
        """
        arguments = np.array([argument.ctypes.data], np.uint64)
        launched = driver.cuLaunchKernel(
            function, *shape, 0, self._queue, int(arguments.ctypes.data), 0
        )
        self._check(launched, f"launch {name}")

    # ---------------------------------------------------------------- matmul

    def _matmul(
        self,
        spec: Matmul,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        extra: DeviceArray | None,
        module: Module,
    ) -> None:
        # Addresses and not arrays: a new array at an old address takes the same arguments.
        where = (a.ptr, b.ptr, out.ptr, 0 if extra is None else extra.ptr)
        key = (spec, *where, module == "graphed")
        calls = self._matmuls.get(key)
        if calls is None:
            if len(self._matmuls) >= _READY_MATMULS:
                self._matmuls.clear()
            large = self._uses_cublaslt(spec)
            ready = self._large_matmul if large else self._small_matmul
            calls = self._matmuls[key] = ready(spec, a, b, out, extra, module)
        for call in calls:
            call()

    def _matmul_group(self, members: Sequence[Product], module: Module) -> None:
        arrays = [(p.a.ptr, p.b.ptr, p.out.ptr, p.extra.ptr if p.extra else 0) for p in members]
        key = (*(p.spec for p in members), *arrays, module == "graphed")
        calls = self._matmuls.get(key)
        if calls is None:
            if len(self._matmuls) >= _READY_MATMULS:
                self._matmuls.clear()
            calls = self._matmuls[key] = (self._group_call(stacked(members), module),)
        for call in calls:
            call()

    def _group_call(self, members: Sequence[Product], module: Module) -> Callable[[], None]:
        if all(p.spec.is_long for p in members):
            return self._long_call(members, module)
        if name := self._wide_kernel([p.spec for p in members]):
            return self._kernel_call(name, self._wide_arguments(members), module)
        args: dict[str, DeviceArray | int | float] = {}
        tiles = 0
        for i in range(gemm_group.MEMBERS):
            product = members[i] if i < len(members) else members[0]
            spec = product.spec
            tile_m, tiles_m, tiles_n = gemm.tiling(spec.m, spec.n)
            tiles += tiles_m * tiles_n if i < len(members) else 0
            form = gemm_group.form(
                _EPILOGUES[spec.epilogue], tile_m, trans_a=spec.trans_a, trans_b=spec.trans_b
            )
            args |= {
                f"a{i}": product.a,
                f"b{i}": product.b,
                f"extra{i}": product.a if product.extra is None else product.extra,
                f"out{i}": product.out,
                f"m{i}": spec.m if i < len(members) else 0,
                f"n{i}": spec.n,
                f"k{i}": spec.k,
                f"form{i}": form,
            }
        return self._kernel_call("gemm_group", {**args, "tiles": tiles}, module)

    def _wide_kernel(self, specs: Sequence[Matmul]) -> str:
        """The kernel of large tiles for the products of one launch; empty: small tiles are faster.

        Products of several precisions in one launch are taken in float32, and so are all where the
        tensor cores have no TF32.
        """
        if any(s.trans_a and s.trans_b for s in specs):
            return ""
        if not matmul.is_wide([(s.m, s.n, s.k) for s in specs], self.largest_shared):
            return ""
        precisions = {s.precision for s in specs}
        takes_tf32 = len(precisions) == 1 and self._gpu.compute_capability.major >= 8
        return f"matmul_{precisions.pop() if takes_tf32 else 'float32'}"

    def _wide_arguments(self, members: Sequence[Product]) -> dict[str, Any]:
        products = [
            (
                p.a, p.b, p.extra, p.out, (p.spec.m, p.spec.n, p.spec.k),
                _EPILOGUES[p.spec.epilogue], p.spec.trans_a, p.spec.trans_b,
            )
            for p in members
        ]  # fmt: skip
        return matmul.arguments(products, self.largest_cluster, self.largest_shared)

    def matmul_launches(self, spec: Matmul) -> tuple[int, int]:
        """One for our kernel; for cuBLASLt its own, one or two, and ours for a ReLU.

        The second of its own adds the parts of a split K, which we allow for long sums alone
        (`cublaslt.splits`): the mask of the heuristic is a request.
        """
        if not self._uses_cublaslt(spec):
            return 1, 1
        epilogue = int(spec.epilogue not in ("none", "bias"))
        return 1 + epilogue, 2 + epilogue

    def matmul_memsets(self, spec: Matmul) -> int:
        """One where cuBLASLt may split K: it can have a counter in its workspace to reset."""
        if not self._uses_cublaslt(spec):
            return 0
        from onegraph.kernels.device.cublaslt import splits

        return int(splits(spec))

    def _uses_cublaslt(self, spec: Matmul) -> bool:
        if self._lt is None or spec.m * spec.n * spec.k == 0:
            return False
        if self._gemm == "cublaslt":
            return True
        if spec.is_long:
            return False
        return matmul.is_large(spec.m, spec.n, spec.k, spec.precision)

    def _kernel_call(
        self,
        name: str,
        args: Mapping[str, DeviceArray | int | float],
        module: Module,
    ) -> Callable[[], None]:
        spec = find(name)
        scalars = {k: v for k, v in args.items() if not isinstance(v, DeviceArray)}
        blocks = spec.capped(spec.blocks(scalars), MAX_BLOCKS, scalars)
        call = self._prepare(spec, args, scalars, blocks, module)
        return partial(self._enqueue, call, name)

    def _small_matmul(
        self,
        spec: Matmul,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        extra: DeviceArray | None,
        module: Module,
    ) -> tuple[Callable[[], None], ...]:
        if spec.is_long:
            return (self._long_call([Product(spec, a, b, out, extra)], module),)
        if name := self._wide_kernel([spec]):
            wide = self._wide_arguments([Product(spec, a, b, out, extra)])
            return (self._kernel_call(name, wide, module),)
        tile_m, tiles_m, tiles_n = gemm.tiling(spec.m, spec.n)
        args: dict[str, DeviceArray | int | float] = {
            "a": a,
            "b": b,
            "extra": a if extra is None else extra,  # not read without an epilogue
            "out": out,
            "m": spec.m,
            "n": spec.n,
            "k": spec.k,
            "trans_a": int(spec.trans_a),
            "trans_b": int(spec.trans_b),
            "epilogue": _EPILOGUES[spec.epilogue],
            "tile_m": tile_m,
            "tiles_m": tiles_m,
            "tiles_n": tiles_n,
        }
        return (self._kernel_call("gemm", args, module),)

    def _long_call(self, members: Sequence[Product], module: Module) -> Callable[[], None]:
        products = [
            (p.a, p.b, p.extra, p.out, (p.spec.m, p.spec.n, p.spec.k), _EPILOGUES[p.spec.epilogue])
            for p in members
        ]
        scratch, tickets = self._scratch(members)
        args = matmul_long.arguments(products) | {"scratch": scratch, "tickets": tickets}
        call = self._kernel_call("matmul_long", args, module)
        return partial(self._with_scratch, call, (scratch, tickets))

    def _with_scratch(self, call: Callable[[], None], arrays: tuple[DeviceArray, ...]) -> None:
        if self._capture is not None:
            self._capture.uses(arrays)
        call()

    def _scratch(self, members: Sequence[Product]) -> tuple[DeviceArray, DeviceArray]:
        """Scratch and tickets of a launch of products with long sums.

        Launches that write the same output wait for one another, wherever they stand, so that they
        can share it; others may run at once, and have their own. It goes when the output is freed.
        """
        where = members[0].out.ptr
        needed = max(1, matmul_long.slots([(p.spec.m, p.spec.n, p.spec.k) for p in members]))
        held = self._scratches.get(where)
        if held is None or held[1].size < needed:
            name = f"scratch of matmul {members[0].out.name}"
            self._outside_capture(f"allocate {name}")
            if len(self._scratches) >= _SCRATCHES:
                self._drop_scratch()
            floats = (needed * matmul_long.SLOT,)
            scratch = self._allocate(floats, DTYPES["f32"], name, False)
            tickets = self._allocate((needed,), DTYPES["u32"], f"tickets of {name}", False)
            self._memset(tickets)
            held = self._scratches[where] = scratch, tickets
        return held

    def _drop_scratch(self, output: DeviceArray | None = None) -> None:
        """Let go of the scratch of products that write to `output`, or of all; graphs keep theirs.

        The calls that are ready hold it as well.
        """
        gone = [
            where
            for where in self._scratches
            if output is None or output.ptr <= where < output.ptr + output.nbytes
        ]
        for where in gone:
            del self._scratches[where]
        if gone:
            self._matmuls.clear()

    def _large_matmul(
        self,
        spec: Matmul,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        extra: DeviceArray | None,
        module: Module,
    ) -> tuple[Callable[[], None], ...]:
        aligned = all(x.ptr % 16 == 0 for x in (a, b, out))
        if not self._lt.known(spec, aligned=aligned):
            self._outside_capture(f"plan {spec}")
        bias = 0 if extra is None else extra.ptr
        product = partial(self._cublaslt, spec, a.ptr, b.ptr, out.ptr, bias, aligned=aligned)
        if spec.epilogue in ("none", "bias"):
            return (product,)
        if spec.epilogue == "bias_grad":
            assert extra is not None
            sums: dict[str, DeviceArray | int | float] = {"x": b, "out": extra}
            sums |= {"rows": spec.k, "cols": spec.n}
            return product, self._kernel_call("column_sum", sums, module)
        args: dict[str, DeviceArray | int | float] = {
            "extra": out if extra is None else extra,
            "out": out,
            "n": out.size,
            "grad": int(spec.epilogue == "relu_grad"),
        }
        return product, self._kernel_call("relu_epilogue", args, module)

    def _cublaslt(
        self, spec: Matmul, a: int, b: int, out: int, bias: int, *, aligned: bool
    ) -> None:
        from onegraph.kernels.device.cublaslt import CublasLtError, NoAlgorithmError

        branch = self._branch_index
        if not self._lt.reserved(branch):
            self._outside_capture(f"reserve a workspace for branch {branch}")
        try:
            self._lt.matmul(spec, a, b, out, bias, int(self._queue), aligned=aligned, branch=branch)
        except (CublasLtError, NoAlgorithmError) as error:
            self._translate(error, f"matmul {spec}")

    # ---------------------------------------------------------------- order and time

    def _synchronize(self) -> None:
        self._check(driver.cuStreamSynchronize(self._queue), "synchronize")

    def _create_event(self, label: str) -> DeviceEvent:
        try:
            return DeviceEvent(label, self._gpu.create_event(EventOptions(timing_enabled=True)))
        except CUDAError as error:
            self._translate(error, f"create_event {label}")

    def _record_event(self, event: DeviceEvent) -> None:
        self._check(
            driver.cuEventRecord(event.handle.handle, self._queue), f"record_event {event.label}"
        )

    def _elapsed_ms(self, start: DeviceEvent, end: DeviceEvent) -> float:
        op = f"elapsed_ms {start.label} to {end.label}"
        for event in (start, end):
            self._check(driver.cuEventSynchronize(event.handle.handle), op)
        times = driver.cuEventElapsedTime(start.handle.handle, end.handle.handle)
        return float(self._check(times, op))

    def create_stream(self, label: str = "") -> Stream:
        """A further stream beside the training stream."""
        self._outside_capture(f"create_stream {label}")
        try:
            return Stream(label, self._gpu.create_stream())
        except CUDAError as error:
            self._translate(error, f"create_stream {label}")

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Issue what is asked inside on `stream`, ordered after and before the training stream."""
        op = f"switch to stream {stream.label}"
        self._outside_capture(op)
        before = self._current
        self._order(stream.handle, before, op)
        self._switch(stream.handle)
        try:
            yield
        finally:
            self._switch(before)
            self._order(before, stream.handle, op)

    def _switch(self, stream: Any) -> None:
        self._current = self._target = stream
        self._queue = stream.handle

    def _order(self, later: Any, earlier: Any, op: str) -> None:
        try:
            later.wait(earlier)
        except CUDAError as error:
            self._translate(error, op)

    # ---------------------------------------------------------------- graphs

    def _begin_capture(self, graph: Graph) -> None:
        # A collection in the middle could free a graph, a module or a buffer, which ends a capture.
        # Disabling it does not stop someone's gc.collect() (in a finaliser, say): what is frozen
        # is not collected by that either. Objects that somebody else had frozen are thawed with
        # the rest afterwards, which costs them a visit by later collections and nothing more;
        # whether there are any can't be told (Python 3.12 starts with 375 of its own).
        self._collecting = gc.isenabled()
        gc.disable()
        gc.freeze()
        _capturing.append(self)
        try:
            builder: Any = self._current.create_graph_builder()
            # thread_local: a call of ours that has no place in a capture is an error, where
            # "relaxed" lets it through; other threads (a data loader's) stay free, where "global"
            # would stop them too.
            builder.begin_building("thread_local")
        except CUDAError as error:
            self._finish_capture()
            self._translate(error, f"capture {graph.label}")
        self._builder = self._target = builder
        self._queue = builder.stream.handle

    def _finish_capture(self) -> None:
        self._builder = None
        self._branch_index = 0
        self._switch(self._current)
        _capturing.remove(self)
        if not _capturing:
            _late.clear()
            gc.unfreeze()
        if self._collecting:
            gc.enable()

    def _end_capture(self, graph: Graph) -> None:
        builder = self._builder
        try:
            builder.end_building()
            graph.handle = _Built(builder.graph_definition, builder, self._modules)
        except CUDAError as error:
            _invalidated.append(builder)
            self._translate(error, f"capture {graph.label}")
        finally:
            self._finish_capture()

    def _abandon_capture(self, graph: Graph) -> None:
        # An illegal call is refused before it reaches the driver, so that the capture is valid as
        # a rule and ends like any other.
        builder = self._builder
        try:
            queue = builder.stream.handle
            _, status, *_ = driver.cuStreamIsCapturing(queue)
            if status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_INVALIDATED:
                _invalidated.append(builder)
                driver.cuStreamEndCapture(queue)  # answers with the error; frees the stream
            else:
                builder.end_building()
                builder.close()
        except CUDAError:
            _invalidated.append(builder)
        finally:
            self._finish_capture()

    # A fork as the CUDA programming guide has it: the streams of the further branches or lanes wait
    # for an event of the capturing stream, which makes them part of the capture, and that stream
    # waits for an event of each at the join. cuda.core's `split` would make its streams while
    # capturing. The streams run nothing: a graph is launched on the training stream, after whose
    # allocations its branches come as well.

    def _reserve_branches(self, op: str, products: Sequence[Sequence[Matmul]], marks: int) -> None:
        try:
            if self._forked_at is None:
                self._forked_at = self._gpu.create_event(EventOptions(timing_enabled=False))
            while len(self._sides) < len(products) - 1:
                event = self._gpu.create_event(EventOptions(timing_enabled=False))
                self._sides.append((self._gpu.create_stream(options=_AHEAD), event))
            while len(self._behind) < BACKGROUND_LANES:
                event = self._gpu.create_event(EventOptions(timing_enabled=False))
                self._behind.append((self._gpu.create_stream(), event))
            while len(self._marks) < marks:
                self._marks.append(self._gpu.create_event(EventOptions(timing_enabled=False)))
            for branch, specs in enumerate(products):
                if any(map(self._uses_cublaslt, specs)):
                    self._lt.reserve(branch)
        except CUDAError as error:
            self._translate(error, op)

    def _branch_out(self, count: int, background: int) -> None:
        op = f"fork into {count} branches"
        self._forked_sides = self._sides[: count - 1 - background] + self._behind[:background]
        self._check(driver.cuEventRecord(self._forked_at.handle, self._queue), op)
        for stream, _ in self._forked_sides:
            self._check(driver.cuStreamWaitEvent(stream.handle, self._forked_at.handle, 0), op)

    def _enter_branch(self, index: int) -> None:
        self._branch_index = index
        if index:
            self._target, _ = self._forked_sides[index - 1]
            self._queue = self._target.handle

    def _leave_branch(self) -> None:
        self._branch_index = 0
        self._target = self._builder
        self._queue = self._builder.stream.handle

    # A mark is an event behind the last node of a lane's stream. A stream that waits for it gets
    # that node, beside its own last one, among those that its next node depends on; recorded again
    # later, the event leaves that as it is.

    def _set_mark(self, mark: int) -> None:
        op = f"set mark {mark}"
        self._check(driver.cuEventRecord(self._marks[mark].handle, self._queue), op)

    def _await_mark(self, mark: int) -> None:
        op = f"wait for mark {mark}"
        self._check(driver.cuStreamWaitEvent(self._queue, self._marks[mark].handle, 0), op)

    def _join(self) -> None:
        self._leave_branch()
        op, queue = "join the branches", self._queue
        sides, self._forked_sides = self._forked_sides, []
        for stream, event in sides:
            self._check(driver.cuEventRecord(event.handle, stream.handle), op)
            self._check(driver.cuStreamWaitEvent(queue, event.handle, 0), op)

    def _compose(
        self,
        graph: Graph,
        items: Sequence[Graph | DeviceEvent],
        after: Sequence[Sequence[int]],
    ) -> None:
        definition: Any = GraphDefinition()
        built = _Built(definition, None, self._modules)
        nodes: list[Any] = []
        try:
            for item, places in zip(items, after, strict=True):
                waits = [nodes[place] for place in places]
                if isinstance(item, Graph):
                    nodes.append(_embedded(item, definition, waits))
                else:
                    nodes.append((waits or [definition])[0].record(item.handle))
                    built.event_nodes.append(nodes[-1])
        except CUDAError as error:
            self._translate(error, f"compose {graph.label}")
        graph.handle = built

    # The while-node looks at its condition before its first turn: the control kernel that stands
    # before it decides on that one, so that a loop with nothing to do takes none. Children that are
    # composed themselves are opened: each captured graph becomes a child of the body.

    def _loop(
        self,
        graph: Graph,
        turn: Sequence[Graph],
        control: Launch,
        go: DeviceArray,
        after: Sequence[Sequence[int]],
    ) -> None:
        del go  # a GPU looks at the condition
        kernel, config, values = control.payload
        position = [p.name for p in control.spec.params].index(CONDITION)
        try:
            definition: Any = GraphDefinition()
            condition = definition.create_condition(default_value=0)
            arguments = [*values[:position], condition, *values[position + 1 :]]
            repeat = definition.launch(config, kernel, *arguments).while_loop(condition)
            body = repeat.body
            ends: list[Any] = []
            for part, places in zip(turn, after, strict=True):
                waits = [ends[place] for place in places]
                for captured in _captured([part]):
                    waits = [_embedded(captured, body, waits)]
                ends.append(waits[0])
            awaited = {place for places in after for place in places}
            last, *others = [end for i, end in enumerate(ends) if i not in awaited]
            decision = last.launch(config, kernel, *arguments)
            for other in others:
                decision.pred.add(other)
        except CUDAError as error:
            self._translate(error, f"loop {graph.label}")
        graph.handle = _Built(definition, None, self._modules, turn=body)

    def _attend(self, meanwhile: Meanwhile) -> None:
        not_ready = driver.CUresult.CUDA_ERROR_NOT_READY

        def busy() -> bool:
            state = driver.cuStreamQuery(self._queue)
            if state[0] == not_ready:
                return True
            self._check(state, "wait for the loop")
            return False

        naps.attend(busy, meanwhile)

    def _instantiate(self, executable: GraphExec) -> None:
        definition = executable.graph.handle.definition
        try:
            options = GraphCompleteOptions(upload_stream=self._current)
            executable.handle = definition.instantiate(options)
        except CUDAError as error:
            self._translate(error, f"instantiate {executable.graph.label}")

    def _graph_launch(self, executable: GraphExec) -> None:
        try:
            executable.handle.launch(self._current)
        except CUDAError as error:
            self._translate(error, f"graph_launch {executable.graph.label}")

    def _set_graph_event(self, executable: GraphExec, index: int, event: DeviceEvent) -> None:
        node = executable.graph.handle.event_nodes[index]
        self._check(
            driver.cuGraphExecEventRecordNodeSetEvent(
                executable.handle.handle, node.handle, event.handle.handle
            ),
            f"set_graph_events {executable.graph.label}",
        )

    def facts(self) -> DeviceFacts:
        """The GPU's attributes, as its driver tells them: clocks come in kHz."""
        gpu, capability = self._gpu.properties, self._gpu.compute_capability
        return DeviceFacts(
            name=self.name,
            capability=(int(capability.major), int(capability.minor)),
            multiprocessors=self.multiprocessors,
            clock_hz=1e3 * int(gpu.clock_rate),
            memory_clock_hz=1e3 * int(gpu.memory_clock_rate),
            memory_bus_bits=int(gpu.global_memory_bus_width),
            l2_bytes=int(gpu.l2_cache_size),
        )

    def graph_dot(self, graph: Graph) -> str:
        """The graph as the driver draws it, children as clusters."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.dot"
            try:
                graph.handle.definition.debug_dot_print(str(path))
            except CUDAError as error:
                self._translate(error, f"graph_dot {graph.label}")
            return path.read_text(encoding="utf-8", errors="replace")

    def driver_node_count(self, graph: Graph) -> int:
        """Nodes that do work, children's included, by the driver's count; of a loop one turn."""
        built = graph.handle
        turn = 0 if built.turn is None else self._driver_nodes(built.turn.handle)
        return self._driver_nodes(built.definition.handle) + turn

    def _driver_nodes(self, handle: Any) -> int:
        op, kinds = "driver_node_count", driver.CUgraphNodeType
        _, count = self._check(driver.cuGraphGetNodes(handle), op)
        nodes, _ = self._check(driver.cuGraphGetNodes(handle, count), op)
        total = 0
        for node in nodes:
            kind = self._check(driver.cuGraphNodeGetType(node), op)
            if kind == kinds.CU_GRAPH_NODE_TYPE_GRAPH:
                child = self._check(driver.cuGraphChildGraphNodeGetGraph(node), op)
                total += self._driver_nodes(child)
            elif kind not in (
                kinds.CU_GRAPH_NODE_TYPE_EMPTY,
                kinds.CU_GRAPH_NODE_TYPE_CONDITIONAL,
            ):
                total += 1
        return total

    # ---------------------------------------------------------------- lifetime

    def _close(self) -> None:
        """Wait for the GPU, then give up plans, modules and the stream.

        Graphs that are still open keep the modules they use.
        """
        with contextlib.suppress(CUDAError):  # an earlier failure has been reported already
            self._stream.sync()
        self._matmuls.clear()
        self._scratches.clear()
        self._kernels.clear()
        self._modules = []
        if self._lt is not None:
            self._lt.close()
            self._lt = None
        self._workspaces.clear()
        self._sides.clear()
        self._forked_at = None
        self._marks.clear()
        self._stream = self._current = self._target = self._queue = None


def _embedded(graph: Graph, definition: Any, waits: Sequence[Any]) -> Any:
    """The node of `graph` as a child in `definition`, behind the nodes `waits`."""
    first, *others = waits or (definition,)
    node = first.embed(graph.handle.definition)
    for other in others:
        node.pred.add(other)
    return node


def _captured(graphs: Sequence[Graph]) -> Iterator[Graph]:
    """The captured graphs that `graphs` are composed of, in order."""
    for graph in graphs:
        if graph.children:
            yield from _captured(graph.children)
        else:
            yield graph
