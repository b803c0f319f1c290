"""The rules of every device on a GPU, and what is CUDA's own."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from device_rules import *  # noqa: F403
from device_rules import f32, relu, values

from onegraph.kernels.compile import ARCHITECTURES
from onegraph.kernels.device.base import Matmul

pytestmark = pytest.mark.gpu


def test_name_and_architecture(device):
    assert device.kind == "cuda"
    assert device.name
    assert device.arch in ARCHITECTURES
    assert "kernel" in device.matmul_backend


def test_unknown_gemm_mode(cuda):
    with pytest.raises(ValueError, match="choose auto, kernel or cublaslt"):
        type(cuda)(gemm="cutlass")


def test_gpu_that_is_not_there(cuda):
    from onegraph.kernels.device import DeviceUnavailableError

    with pytest.raises(DeviceUnavailableError, match=r"GPU 99 can't be used.*--device host"):
        type(cuda)(index=99)


def test_memory_comes_back(device):
    size = 256 << 20
    before = device.memory_free()
    array = device.allocate((size,), "u8")
    device.memset_sync(array)
    assert before - device.memory_free() >= size
    device.free(array)
    device.synchronize()
    assert device.memory_free() >= before - (64 << 20)  # the pool's own rounding


# -------------------------------------------------------------------- modules


def test_two_sets_of_modules(device):
    x, ledger = device.upload(f32(-1)), device.ledger
    ledger.begin("setup", 0)
    relu(device, x)
    relu(device, x, "ungraphed")
    with device.warm_up():
        relu(device, x, "graphed")
        relu(device, x, "graphed")
    assert ledger.end().by_kind()["module_load"] == 2
    shared = device.prepare("relu_epilogue", {"extra": x, "out": x, "n": 1, "grad": 0})
    graphed = device.prepare(
        "relu_epilogue", {"extra": x, "out": x, "n": 1, "grad": 0}, module="graphed"
    )
    assert int(shared.payload[0].handle) != int(graphed.payload[0].handle)


def test_scalars_arrive_as_declared(device):
    """An int of 64 bits where the kernel takes 32 would shift every argument after it."""
    out = device.upload(np.full(6, -1, np.float32))
    device.run("pad_rows", src=device.upload(f32(1, 2, 3)), dst=out, n=1, width=3, padded=5)
    assert values(out) == [1, 2, 3, 0, 0, -1]


# -------------------------------------------------------------------- graphs


def test_driver_counts_the_same_nodes(device):
    x, y = device.upload(f32(-1, 2), "x"), device.upload(f32(3, 4), "y")
    event = device.create_event("e")
    with device.warm_up():
        relu(device, x, "graphed")
        device.matmul(Matmul(1, 1, 2), x, y, device.allocate((1,), "f32"), module="graphed")
    out = device.allocate((1,), "f32", "out")
    with device.capture("first") as first:
        relu(device, x, "graphed")
        device.memset(y)
    with device.capture("second") as second:
        device.copy_dtod(y, x)
        device.matmul(Matmul(1, 1, 2), x, y, out, module="graphed")
    assert device.driver_node_count(first) == first.node_count() == 2
    assert device.driver_node_count(second) == second.node_count() == 2
    parent = device.compose("parent", [event, first, event, second, event])
    assert device.driver_node_count(parent) == parent.node_count() == 7
    outer = device.compose("outer", [parent, first])
    assert device.driver_node_count(outer) == outer.node_count() == 9


def test_event_nodes_time_what_lies_between_them(device):
    big, small = device.allocate((1 << 26,), "f32"), device.allocate((1,), "f32")
    events = [device.create_event(str(i)) for i in range(3)]
    with device.capture("much") as much:
        for _ in range(20):
            device.memset(big)
    with device.capture("little") as little:
        device.memset(small)
    parent = device.compose("p", [events[0], much, events[1], little, events[2]])
    executable = device.instantiate(parent)
    for _ in range(2):
        device.graph_launch(executable)
    device.synchronize()
    # 20 x 256 MiB take a millisecond on any GPU; a clear of four bytes a few microseconds.
    assert device.elapsed_ms(events[0], events[1]) > device.elapsed_ms(events[1], events[2]) > 0


def test_graph_outlives_what_python_forgets(device):
    x = device.upload(f32(-1, 2))

    def build():
        scratch = device.allocate((2,), "f32", "scratch")
        relu(device, scratch)
        with device.capture("g") as graph:
            device.copy_dtod(scratch, x)
            relu(device, scratch)
            device.copy_dtod(x, scratch)
        return device.instantiate(device.compose("p", [graph]))

    executable = build()
    gc.collect()
    other = [device.upload(np.full(2, 9, np.float32)) for _ in range(50)]
    device.graph_launch(executable)
    assert values(x) == [0, 2]
    assert all(values(o) == [9, 9] for o in other)


def test_collection_is_off_during_a_capture_and_back_after(device):
    assert gc.isenabled()
    with device.capture("g"):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), device.capture("g"):
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.disable()
    try:
        with device.capture("g"):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pinned_record_written_by_a_graph(device):
    record = device.allocate((2,), "f32", "record", pinned=True)
    source = device.allocate((2,), "f32", "source")
    relu(device, record)
    with device.capture("publish") as graph:
        device.copy_dtod(record, source)
        relu(device, record)
    executable = device.instantiate(graph)
    for data, want in [((-1, 5), [0, 5]), ((7, -2), [7, 0])]:
        device.copy_htod(source, f32(*data))
        device.graph_launch(executable)
        device.synchronize()
        assert record.host.tolist() == want


def test_capture_on_another_stream(device):
    x = device.upload(f32(-1, 2))
    relu(device, device.upload(f32(0)))
    with device.on(device.create_stream("side")):
        with device.capture("g") as graph:
            relu(device, x)
        device.graph_launch(device.instantiate(graph))
    assert values(x) == [0, 2]


def test_closing_under_a_graph_in_flight(device):
    x = device.allocate((1 << 24,), "f32")
    relu(device, x)
    with device.capture("g") as graph:
        for _ in range(50):
            relu(device, x)
    executable = device.instantiate(graph)
    device.graph_launch(executable)
    device.close()
    graph.close()
    del executable
    gc.collect()
