"""CUPTI and a driver under it, with no GPU: a fake `cupti` module that a traced host device calls.

`TracedDevice` reports for each call what `CudaDevice` asks of the driver, so that the counter and
the checks are run as they are on a GPU. What a driver really reports, tests/gpu shows.
"""

from __future__ import annotations

import enum
import sys
import types
from types import SimpleNamespace

from onegraph.kernels.device import HostDevice


class CallbackDomain(enum.IntEnum):
    DRIVER_API = 1


class ApiCallbackSite(enum.IntEnum):
    API_ENTER = 0
    API_EXIT = 1


class ActivityKind(enum.IntEnum):
    MEMCPY = 1
    KERNEL = 3
    CONCURRENT_KERNEL = 10


class cuptiError(Exception):  # noqa: N801  cupti-python's spelling
    pass


class FakeCupti(types.ModuleType):
    """What `CuptiCounter` uses of cupti-python, with one subscriber and buffered records."""

    CallbackDomain, ApiCallbackSite, ActivityKind = CallbackDomain, ApiCallbackSite, ActivityKind
    cuptiError = cuptiError  # noqa: N815

    def __init__(self) -> None:
        super().__init__("cupti.cupti")
        self.callback = None
        self.domains: set[int] = set()
        self.kinds: set[int] = set()
        self.full = None
        self.buffer: list[SimpleNamespace] = []
        self.correlation = 0
        self.current: TracedDevice | None = None

    def install(self, monkeypatch) -> None:
        package = types.ModuleType("cupti")
        package.cupti = self
        monkeypatch.setitem(sys.modules, "cupti", package)
        monkeypatch.setitem(sys.modules, "cupti.cupti", self)

    def subscribe(self, callback, userdata):
        if self.callback is not None:
            raise cuptiError("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.callback = callback
        return 1

    def unsubscribe(self, subscriber):
        self.callback = None

    def enable_domain(self, enable, subscriber, domain):
        self.domains.add(int(domain))

    def activity_register_callbacks(self, requested, completed):
        size, _ = requested()
        assert size > 0
        self.full = completed

    def activity_enable(self, kind):
        self.kinds.add(int(kind))

    def activity_disable(self, kind):
        self.kinds.discard(int(kind))

    def activity_flush_all(self, flag):
        records, self.buffer = self.buffer, []
        self.full(records)

    def call(self, name: str) -> int:
        """A driver call: entered and left."""
        self.correlation += 1
        if self.callback is not None and CallbackDomain.DRIVER_API in self.domains:
            for site in ApiCallbackSite:
                data = SimpleNamespace(
                    callback_site=int(site), function_name=name, correlation_id=self.correlation
                )
                self.callback(None, 1, 0, data)
        return self.correlation

    def ran(self, correlation: int, graph: int) -> None:
        """A kernel, and a copy that is no kernel, have run."""
        for kind in (ActivityKind.CONCURRENT_KERNEL, ActivityKind.MEMCPY):
            if kind in self.kinds:
                self.buffer.append(
                    SimpleNamespace(
                        kind=int(kind), correlation_id=correlation, graph_id=graph, name="k"
                    )
                )


class TracedDevice(HostDevice):
    """The host device, taken for a GPU."""

    kind = "cuda"
    name = "traced"

    def __init__(self, cupti: FakeCupti) -> None:
        super().__init__()
        self.cupti = cupti

    def _allocate(self, shape, dtype, name, pinned):
        self.cupti.call("cuMemHostAlloc_v2" if pinned else "cuMemAllocFromPoolAsync")
        return super()._allocate(shape, dtype, name, pinned)

    def _free(self, array):
        self.cupti.call("cuMemFreeHost" if array.pinned else "cuMemFreeAsync")
        super()._free(array)

    def _copy_htod(self, dst, src):
        self.cupti.call("cuMemcpyHtoDAsync_v2")
        super()._copy_htod(dst, src)

    def _copy_dtoh(self, dst, src):
        self.cupti.call("cuMemcpyDtoHAsync_v2")
        self.cupti.call("cuStreamSynchronize")
        super()._copy_dtoh(dst, src)

    def _copy_dtod(self, dst, src):
        self.cupti.call("cuMemcpyDtoDAsync_v2")
        super()._copy_dtod(dst, src)

    def _memset(self, dst):
        self.cupti.call("cuMemsetD8Async")
        super()._memset(dst)

    def _kernel(self):
        self.cupti.call("cuStreamGetCaptureInfo_v2")  # asks for no work
        correlation = self.cupti.call("cuLaunchKernelEx")
        if self._capture is None:
            self.cupti.ran(correlation, 0)

    def _launch(self, launch):
        self._kernel()
        super()._launch(launch)

    def _launch_group(self, group):
        self._kernel()
        super()._launch_group(group)

    def _matmul(self, spec, a, b, out, extra, module):
        self._kernel()
        super()._matmul(spec, a, b, out, extra, module)

    def _matmul_group(self, members, module):
        self._kernel()
        super()._matmul_group(members, module)

    def _synchronize(self):
        self.cupti.call("cuStreamSynchronize")

    def _record_event(self, event):
        self.cupti.call("cuEventRecord")
        super()._record_event(event)

    def _record_node(self, executable, index):
        HostDevice._record_event(self, executable.events[index])  # a node, not a call

    def _begin_capture(self, graph):
        self.cupti.call("cuStreamBeginCapture_v2")
        super()._begin_capture(graph)

    def _instantiate(self, executable):
        self.cupti.call("cuGraphInstantiateWithParams")
        super()._instantiate(executable)

    def _graph_launch(self, executable):
        correlation = self.cupti.call("cuGraphLaunch")

        def kernels(graph):
            nodes = [node for node in graph.nodes if node.kind in ("kernel", "matmul")]
            if graph.loops:  # nothing of a turn is traced, only the control before the first
                nodes = nodes[:1]
            yield from nodes
            for child in [] if graph.loops else graph.children:
                yield from kernels(child)

        for _ in kernels(executable.graph):
            self.cupti.ran(correlation, 5)
        super()._graph_launch(executable)

    def _set_graph_event(self, executable, index, event):
        self.cupti.call("cuGraphExecEventRecordNodeSetEvent")
        super()._set_graph_event(executable, index, event)
