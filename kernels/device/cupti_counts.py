"""CUPTI: which driver calls were made and which kernels ran, counted by the driver's own tool.

The ledger counts what `Device` is asked for. CUPTI does not trust it: it also sees what a bypass
of `Device` does. Driver calls are counted by callbacks as they are entered; kernels by activity
records, which carry the id of the graph that they ran in (0 outside graphs). ``GRAPH_TRACE`` stays
off, because it hides the kernels of a graph behind one record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from onegraph.kernels.device.ledger import Ledger


class CuptiUnavailableError(RuntimeError):
    """CUPTI can't count here; the message says why and what to do."""


@dataclass(frozen=True)
class CallClass:
    """Driver calls that mean the same, and the ledger kinds that they are counted as.

    Attributes:
        kinds: none, if `Device` has no such call at all.
        pattern: matches the driver's names without their version and stream suffixes.
    """

    name: str
    kinds: tuple[str, ...]
    pattern: str


#: In the words of the ledger. What matches none asks for no work: queries, contexts, attributes.
CALL_CLASSES = (
    CallClass(
        "launches",
        ("launch", "matmul"),
        r"cuLaunch(Kernel(Ex)?|Cooperative\w+|Grid\w*)?",
    ),
    CallClass("graph launches", ("graph_launch",), r"cuGraphLaunch"),
    CallClass("copies HtoD", ("htod",), r"cuMemcpyHto[AD](Async)?"),
    CallClass("copies DtoH", ("dtoh",), r"cuMemcpy[AD]toH(Async)?"),
    CallClass("copies DtoD", ("dtod",), r"cuMemcpy[AD]to[AD](Async)?"),
    # Those whose name does not say the direction. `Device` makes none of them.
    CallClass("other copies", (), r"cuMemcpy(?!(H|A|D)to)\w*"),
    CallClass("memsets", ("memset", "memset_sync"), r"cuMemsetD\w+"),
    CallClass("allocations", ("alloc",), r"cuMem(Alloc(?!ation)\w*|HostAlloc|Create)"),
    CallClass("frees", ("free",), r"cuMem(Free\w*|Release)"),
    CallClass("synchronisations", ("sync",), r"cu(Stream|Event|Ctx)Synchronize"),
    CallClass("event records", ("event_record",), r"cuEventRecord(WithFlags)?"),
    CallClass("event sets", ("event_set",), r"cuGraphExecEventRecordNodeSetEvent"),
    CallClass("captures", ("capture",), r"cuStreamBeginCapture\w*"),
    CallClass("instantiations", ("instantiate",), r"cuGraphInstantiate\w*"),
    CallClass("module loads", ("module_load",), r"cu(Module|Library)Load\w*"),
    CallClass("host functions", (), r"cuLaunchHostFunc|cuStreamAddCallback"),
)

_PATTERNS = tuple((c.name, re.compile(c.pattern)) for c in CALL_CLASSES)
_SUFFIXES = re.compile(r"(_v\d+)?(_pt[ds][sz])?$")


def call_class(name: str) -> str:
    """The name of the class that the driver call `name` belongs to; empty if to none."""
    plain = _SUFFIXES.sub("", name).replace("cu64", "cu", 1)
    return next((label for label, pattern in _PATTERNS if pattern.fullmatch(plain)), "")


@dataclass
class DriverStep:
    """What the driver was asked for in one step.

    Attributes:
        calls: ``(scope, phase, op, driver call)``, with the ledger's words for the place.
        kernels: kernels by the id of the graph that they ran in, 0 for none. Complete once the
            counter has settled.
    """

    calls: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    kernels: Counter[int] = field(default_factory=Counter)

    def by_name(self) -> Counter[str]:
        """Calls by the driver's name."""
        total: Counter[str] = Counter()
        for (*_, name), n in self.calls.items():
            total[name] += n
        return total


class CuptiCounter:
    """Counts what happens inside `step`. One at a time in a process, and no other profiler.

    Open it before the graphs are made that it shall see into.

    Args:
        on_call: called with the driver's name of each call as it is entered, in a step or not, on
            the thread that makes it; it may make no driver call itself, nor raise: CUPTI has
            nobody to raise to.

    Raises:
        CuptiUnavailableError: cupti-python or its library is not installed, or another tool holds
            CUPTI.
    """

    #: CUPTI keeps the buffer callbacks that it was given first, so they serve every counter.
    _registered: ClassVar[bool] = False
    _open: ClassVar[CuptiCounter | None] = None

    def __init__(self, on_call: Callable[[str], None] | None = None) -> None:
        try:
            from cupti import cupti
        except (ImportError, RuntimeError) as error:
            raise CuptiUnavailableError(
                f"CUPTI: not installed ({error}); pip install 'onegraph[cuda]'"
            ) from error
        self._cupti: Any = cupti
        self._enter = int(cupti.ApiCallbackSite.API_ENTER)
        self._kernel_kinds = {
            int(cupti.ActivityKind.CONCURRENT_KERNEL),
            int(cupti.ActivityKind.KERNEL),
        }
        self._on_call = on_call
        self._ledger: Ledger | None = None
        self._step: DriverStep | None = None
        self._by_correlation: dict[int, DriverStep] = {}
        self._records: list[tuple[int, int]] = []
        # Held here: CUPTI keeps an address, which is no reference.
        self._callback = self._called
        try:
            self._subscriber = cupti.subscribe(self._callback, None)
        except (RuntimeError, cupti.cuptiError) as error:
            raise CuptiUnavailableError(
                f"CUPTI: can't subscribe ({error}); end other profilers of this process (Nsight,"
                " PyTorch's), and check that nvidia-smi lists the GPU"
            ) from error
        try:
            cupti.enable_domain(1, self._subscriber, cupti.CallbackDomain.DRIVER_API)
            if not CuptiCounter._registered:
                cupti.activity_register_callbacks(_empty_buffer, _full_buffer)
                CuptiCounter._registered = True
            cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
        except (RuntimeError, cupti.cuptiError) as error:
            cupti.unsubscribe(self._subscriber)
            raise CuptiUnavailableError(
                f"CUPTI: can't count ({error}); the driver may restrict profiling to"
                " administrators (NVreg_RestrictProfilingToAdminUsers)"
            ) from error
        CuptiCounter._open = self

    @contextmanager
    def step(self, ledger: Ledger) -> Iterator[DriverStep]:
        """Count what happens inside; `ledger` says where in the program each call is made."""
        self._ledger, self._step = ledger, DriverStep()
        try:
            yield self._step
        finally:
            self._ledger = self._step = None

    def settle(self) -> None:
        """Give every step the kernels that it launched. The device must have been waited for."""
        self._cupti.activity_flush_all(1)
        records, self._records = self._records, []
        for correlation, graph in records:
            if (step := self._by_correlation.get(correlation)) is not None:
                step.kernels[graph] += 1
        self._by_correlation.clear()

    def close(self) -> None:
        """Stop counting."""
        if CuptiCounter._open is self:
            CuptiCounter._open = None
            self._cupti.activity_disable(self._cupti.ActivityKind.CONCURRENT_KERNEL)
            self._cupti.unsubscribe(self._subscriber)

    def _called(self, userdata: object, domain: int, number: int, data: Any) -> None:
        """CUPTI's callback: a driver call is entered or left. It may make no driver call itself."""
        if data.callback_site != self._enter:
            return
        if self._on_call is not None:
            self._on_call(data.function_name)
        step, ledger = self._step, self._ledger
        if step is None or ledger is None:
            return
        step.calls[ledger.scope, ledger.phase, ledger.op, data.function_name] += 1
        self._by_correlation[data.correlation_id] = step

    def _take(self, records: list[Any]) -> None:
        for record in records:
            if record.kind in self._kernel_kinds:
                self._records.append((record.correlation_id, record.graph_id))


def _empty_buffer() -> tuple[int, int]:
    """A buffer of 8 MiB, for as many records as it holds."""
    return 8 << 20, 0


def _full_buffer(records: list[Any]) -> None:
    if CuptiCounter._open is not None:
        CuptiCounter._open._take(records)
