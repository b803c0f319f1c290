"""The counter on a fake CUPTI, and which class each of the driver's calls belongs to."""

from __future__ import annotations

import sys

import pytest
from traced_device import FakeCupti, cuptiError

from onegraph.kernels.device.cupti_counts import (
    CALL_CLASSES,
    CuptiCounter,
    CuptiUnavailableError,
    call_class,
)
from onegraph.kernels.device.ledger import KINDS, Ledger, OpLedger


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("cuLaunchKernel", "launches"),
        ("cuLaunchKernelEx", "launches"),
        ("cuLaunchKernelEx_ptsz", "launches"),
        ("cuLaunchCooperativeKernel", "launches"),
        ("cuLaunchHostFunc_v2", "host functions"),
        ("cuStreamAddCallback", "host functions"),
        ("cuGraphLaunch", "graph launches"),
        ("cuGraphLaunch_ptsz", "graph launches"),
        ("cuMemcpyHtoDAsync_v2", "copies HtoD"),
        ("cuMemcpyHtoD_v2_ptds", "copies HtoD"),
        ("cuMemcpyDtoHAsync_v2_ptsz", "copies DtoH"),
        ("cu64MemcpyDtoH", "copies DtoH"),
        ("cuMemcpyDtoDAsync_v2", "copies DtoD"),
        ("cuMemcpyAtoH_v2", "copies DtoH"),
        ("cuMemcpy", "other copies"),
        ("cuMemcpyAsync", "other copies"),
        ("cuMemcpy2DAsync_v2", "other copies"),
        ("cuMemcpyPeerAsync", "other copies"),
        ("cuMemcpyBatchAsync_v2", "other copies"),
        ("cuMemsetD8Async", "memsets"),
        ("cuMemsetD32_v2", "memsets"),
        ("cuMemAllocAsync", "allocations"),
        ("cuMemAllocFromPoolAsync_ptsz", "allocations"),
        ("cuMemAlloc_v2", "allocations"),
        ("cuMemHostAlloc", "allocations"),
        ("cuMemFreeAsync", "frees"),
        ("cuMemFreeHost", "frees"),
        ("cuStreamSynchronize", "synchronisations"),
        ("cuEventSynchronize", "synchronisations"),
        ("cuCtxSynchronize_v2", "synchronisations"),
        ("cuEventRecord", "event records"),
        ("cuEventRecordWithFlags_ptsz", "event records"),
        ("cuGraphExecEventRecordNodeSetEvent", "event sets"),
        ("cuStreamBeginCapture_v2", "captures"),
        ("cuGraphInstantiateWithParams", "instantiations"),
        ("cuLibraryLoadData", "module loads"),
        ("cuModuleLoadDataEx", "module loads"),
        ("cuStreamGetCaptureInfo_v2", ""),
        ("cuCtxGetCurrent", ""),
        ("cuEventQuery", ""),
        ("cuMemGetInfo_v2", ""),
        ("cuMemGetAllocationGranularity", ""),
        ("cuGraphAddKernelNode", ""),
        ("cuGraphAddMemcpyNode", ""),
        ("cuEventElapsedTime", ""),
    ],
)
def test_the_class_of_a_driver_call(name: str, label: str) -> None:
    assert call_class(name) == label


def test_every_ledger_kind_that_reaches_the_driver_has_one_class() -> None:
    kinds = [kind for group in CALL_CLASSES for kind in group.kinds]
    assert sorted(kinds) == sorted(set(KINDS) - {"host", "captured"})


@pytest.fixture
def cupti(monkeypatch):
    fake = FakeCupti()
    fake.install(monkeypatch)
    monkeypatch.setattr(CuptiCounter, "_registered", False)
    return fake


@pytest.fixture
def counter(cupti):
    opened = CuptiCounter()
    yield opened
    opened.close()


def test_calls_are_counted_inside_steps_alone_and_by_place(cupti, counter) -> None:
    ledger = Ledger()
    ledger.begin("learn", 3)
    cupti.call("cuLaunchKernel")
    ledger.phase, ledger.op = "forward", "launch x"
    with counter.step(ledger) as step:
        cupti.call("cuLaunchKernel")
        cupti.call("cuLaunchKernel")
        ledger.phase, ledger.op = "report", "copy y"
        cupti.call("cuMemcpyDtoHAsync_v2")
    cupti.call("cuLaunchKernel")
    assert dict(step.calls) == {
        ("learn", "forward", "launch x", "cuLaunchKernel"): 2,
        ("learn", "report", "copy y", "cuMemcpyDtoHAsync_v2"): 1,
    }
    assert step.by_name() == {"cuLaunchKernel": 2, "cuMemcpyDtoHAsync_v2": 1}


def test_kernels_come_to_the_step_that_launched_them(cupti, counter) -> None:
    ledger = Ledger()
    early = cupti.call("cuLaunchKernel")
    with counter.step(ledger) as first:
        launch = cupti.call("cuLaunchKernel")
    with counter.step(ledger) as second:
        graph = cupti.call("cuGraphLaunch")
    for correlation, graph_id in ((early, 0), (graph, 5), (graph, 5), (launch, 0)):
        cupti.ran(correlation, graph_id)
    assert not first.kernels
    counter.settle()
    assert first.kernels == {0: 1}
    assert second.kernels == {5: 2}


def test_an_op_ledger_knows_the_op() -> None:
    ledger = OpLedger()
    ledger.begin("learn", 0)
    ledger.phase, ledger.op = "a", "launch x"
    ledger.count("launch")
    ledger.count("launch")
    ledger.op = "copy y"
    ledger.count("dtoh")
    assert ledger.calls == {
        ("learn", "a", "launch x", "launch"): 2,
        ("learn", "a", "copy y", "dtoh"): 1,
    }
    assert ledger.end().counts == {("a", "launch"): 2, ("a", "dtoh"): 1}


# -------------------------------------------------------------------- where it can't count


def test_without_cupti_python(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(CuptiUnavailableError, match=r"CUPTI: not installed.*'onegraph\[cuda\]'"):
        CuptiCounter()


def test_a_second_counter_is_refused_and_the_first_goes_on(cupti, counter) -> None:
    with pytest.raises(CuptiUnavailableError, match=r"MULTIPLE_SUBSCRIBERS.*end other profilers"):
        CuptiCounter()
    with counter.step(Ledger()) as step:
        cupti.call("cuGraphLaunch")
    assert step.by_name() == {"cuGraphLaunch": 1}


def test_activities_refused_by_the_driver_leave_no_subscriber(cupti, monkeypatch) -> None:
    def refuse(kind):
        raise cuptiError("INSUFFICIENT_PRIVILEGES")

    monkeypatch.setattr(cupti, "activity_enable", refuse)
    with pytest.raises(CuptiUnavailableError, match=r"INSUFFICIENT_PRIVILEGES.*administrators"):
        CuptiCounter()
    assert cupti.callback is None


def test_counters_one_after_the_other(cupti) -> None:
    for _ in range(2):
        counter = CuptiCounter()
        with counter.step(Ledger()) as step:
            cupti.ran(cupti.call("cuLaunchKernel"), 0)
        counter.settle()
        counter.close()
        counter.close()  # twice is harmless
        assert step.kernels == {0: 1}
        assert cupti.callback is None
        assert not cupti.kinds
