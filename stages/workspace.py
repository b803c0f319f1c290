"""The arrays behind a program's buffer names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import DTYPES
from onegraph.kernels.device.base import Device, DeviceArray
from onegraph.stages.program import Buffer, Ref


class GraphOwner(Protocol):
    """Someone who holds graphs over the workspace's arrays and can let go of them."""

    def release_graphs(self) -> None: ...


class Workspace:
    """Allocates what programs declare, once, and shares it between them by name.

    Attributes:
        generation: goes up whenever an array moves, so that whoever bound arrays binds again.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.generation = 0
        self.buffers: dict[str, Buffer] = {}
        self.arrays: dict[str, DeviceArray] = {}
        self.host: dict[str, NDArray[Any]] = {}
        self.owners: WeakSet[GraphOwner] = WeakSet()

    def ensure(self, buffers: Iterable[Buffer]) -> None:
        """Allocate what is new, and re-allocate what changed its shape, dtype or space.

        Graphs over moved arrays are released first, so that none is replayed over freed memory.
        """
        wanted: list[Buffer] = []
        for buffer in buffers:
            known = self.buffers.get(buffer.name)
            if known is None or not known.same_memory(buffer):
                wanted.append(buffer)
            elif buffer.persistent:
                self.buffers[buffer.name] = buffer
        if any(b.name in self.buffers for b in wanted):
            for owner in self.owners:
                owner.release_graphs()
            self.generation += 1
        for buffer in wanted:
            if buffer.name in self.buffers:
                self._drop(buffer.name)
            if not buffer.transient:
                self._create(buffer)
            self.buffers[buffer.name] = buffer

    def _create(self, buffer: Buffer) -> None:
        values = buffer.initial() if buffer.initial is not None else None
        if buffer.space == "host":
            try:
                array = np.zeros(buffer.shape, DTYPES[buffer.dtype])
            except MemoryError:
                self.device.fail(
                    "CUDA_ERROR_OUT_OF_MEMORY",
                    f"allocate {buffer.name}",
                    f"no host memory for {buffer}",
                )
            if values is not None:
                array[...] = values
            self.host[buffer.name] = array
            return
        made = self.device.allocate(
            buffer.shape, buffer.dtype, buffer.name, pinned=buffer.space == "pinned"
        )
        self.arrays[buffer.name] = made
        if buffer.space == "pinned":
            assert made.host is not None
            made.host[...] = 0 if values is None else values
            self.host[buffer.name] = made.host
        elif values is None:
            self.device.memset(made)
        else:
            self.device.copy_htod(made, np.asarray(values, made.dtype))

    def _drop(self, name: str) -> None:
        del self.buffers[name]
        self.host.pop(name, None)
        if (array := self.arrays.pop(name, None)) is not None:
            self.device.free(array)

    def drop(self, names: Iterable[str]) -> None:
        """Free buffers that no program needs any more; those that are not there are passed over."""
        for name in names:
            if name in self.buffers:
                self._drop(name)

    def close(self) -> None:
        """Release graphs, then free every array."""
        for owner in self.owners:
            owner.release_graphs()
        self.generation += 1
        for name in list(self.buffers):
            self._drop(name)

    def declared(self, name: str) -> Buffer:
        """The buffer of that name; ``KeyError`` with the names there are when there is none."""
        if name not in self.buffers:
            raise KeyError(f"no buffer {name!r}; there are {', '.join(sorted(self.buffers))}")
        return self.buffers[name]

    def _array(self, name: str) -> DeviceArray:
        buffer = self.declared(name)
        if name not in self.arrays:
            why = (
                "it is transient, and lives inside a step between its alloc and its free"
                if buffer.transient
                else f"it lives in {buffer.space} memory"
            )
            raise KeyError(f"buffer {name!r} has no device array now: {why}")
        return self.arrays[name]

    def resolve(self, ref: Ref) -> DeviceArray:
        """The device array, or the view of it, that `ref` names."""
        array = self._array(ref.buffer)
        if ref.size is None and not ref.offset:
            return array
        size = array.size - ref.offset if ref.size is None else ref.size
        return array.view(ref.offset, (size,))

    def view(self, name: str) -> DeviceArray:
        """The array behind a buffer in place, for NumPy, PyTorch or CuPy to read without a copy.

        Waits for the device, so that what was asked of it before is there. The array is this
        workspace's until the buffer moves, is dropped, or the workspace closes: then its `freed`
        is true, and it can't be taken up any more. Whoever took it up before keeps the memory, and
        the values that it had last.

        Raises:
            KeyError: no such buffer, or one that has no device array now.
        """
        array = self._array(name)
        self.device.synchronize()
        return array

    def read(self, name: str) -> NDArray[Any]:
        """A copy of a buffer's contents, wherever it lives. Waits for the device."""
        buffer = self.declared(name)
        if buffer.space == "device":
            return self._array(name).to_host_checkpoint()
        if buffer.space == "pinned":
            self.device.synchronize()
        return self.host[name].copy()

    def write(self, name: str, values: NDArray[Any]) -> None:
        """Set a buffer's contents, wherever it lives. Waits if the device maps it."""
        buffer = self.declared(name)
        if values.size != buffer.size or values.dtype != DTYPES[buffer.dtype]:
            raise ValueError(
                f"buffer {buffer} can't take an array of {list(values.shape)} {values.dtype}"
            )
        if buffer.space == "device":
            self.device.copy_htod(self._array(name), values)
        else:
            if buffer.space == "pinned":  # the device may still be at work on it
                self.device.synchronize()
            self.host[name][...] = values.reshape(buffer.shape)
