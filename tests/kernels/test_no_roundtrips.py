"""`no_roundtrips`: what it refuses, what it says, and what a comment allows."""

import sys
import threading

import numpy as np
import pytest
from traced_device import FakeCupti, TracedDevice

from onegraph.guards.runtime import allowed_at
from onegraph.kernels.device import HostDevice, RoundTripError, no_roundtrips
from onegraph.kernels.device.cupti_counts import (
    CALL_CLASSES,
    CuptiCounter,
    CuptiUnavailableError,
)
from onegraph.kernels.device.no_roundtrips import CODES, ROUND_TRIPS, _forbidden_classes


@pytest.fixture
def device():
    return HostDevice()


FORBIDDEN = {
    "dtoh": lambda d, x: x.to_host_checkpoint(),
    "htod": lambda d, x: d.copy_htod(x, np.zeros(2, np.float32)),
    "sync": lambda d, x: d.synchronize(),
    "memset_sync": lambda d, x: d.memset_sync(x),
    "alloc": lambda d, x: d.allocate((2,), "f32"),
    "free": lambda d, x: d.free(x),
    "host": lambda d, x: d.host_op("draw"),
}


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_a_round_trip_raises_before_it_is_made(device, kind):
    x = device.upload(np.ones(2, np.float32))
    with pytest.raises(RoundTripError) as caught, no_roundtrips(device):
        FORBIDDEN[kind](device, x)
    assert caught.value.kind == kind
    assert caught.value.file == __file__
    assert not x.freed
    assert x.to_host_checkpoint().tolist() == [1, 1]
    FORBIDDEN[kind](device, x)  # and outside the block it is as before


def test_the_error_names_op_phase_line_and_remedy(device):
    device.ledger.begin("learn", 3)
    device.ledger.phase, device.ledger.op = "per_sample", "copy_dtoh h_total <- total"
    line = test_the_error_names_op_phase_line_and_remedy.__code__.co_firstlineno + 5
    with pytest.raises(RoundTripError, match="allow it there") as caught, no_roundtrips(device):
        device.synchronize()
    error = caught.value
    assert (error.op, error.phase) == ("copy_dtoh h_total <- total", "per_sample")
    assert error.line == line
    assert f"{__file__}:{line}" in str(error)


def test_what_stays_on_the_device_passes(device):
    x, y = (device.upload(np.ones(2, np.float32)) for _ in range(2))
    with no_roundtrips(device):
        device.copy_dtod(x, y)
        device.memset(y)
    assert y.to_host_checkpoint().tolist() == [0, 0]


def test_launches_are_refused_when_asked(device):
    x = device.upload(np.ones(2, np.float32))
    every = {*ROUND_TRIPS, "memset"}
    with pytest.raises(RoundTripError, match="memset"), no_roundtrips(device, forbid=every):
        device.memset(x)
    wrong = no_roundtrips(device, forbid={"launches"})
    with pytest.raises(ValueError, match="'launches' is none of"), wrong:
        pass


def read(array):
    return array.to_host_checkpoint()


def test_a_comment_on_any_line_of_a_calling_statement_allows(device):
    x = device.upload(np.ones(2, np.float32))
    with no_roundtrips(device):
        x.to_host_checkpoint()  # guards: allow[GRD102, runtime] -- this test reads on purpose
        (
            read(x)  # the call is two frames up
        )  # guards: allow[GRD102, runtime] -- this test reads on purpose
        with pytest.raises(RoundTripError):
            x.to_host_checkpoint()  # guards: allow[GRD101, runtime] -- of another kind
        with pytest.raises(RoundTripError):
            x.to_host_checkpoint()  # guards: allow[GRD102, runtime]


def test_blocks_nest_and_end_with_an_error(device):
    with no_roundtrips(device):
        with pytest.raises(KeyError), no_roundtrips(device, forbid=()):
            raise KeyError
        with pytest.raises(RoundTripError):
            device.synchronize()
    device.synchronize()
    assert device.ledger.watch is None


def test_every_kind_that_is_refused_has_a_code():
    assert all(CODES[kind] for kind in ROUND_TRIPS)


def test_a_file_that_is_not_there_allows_nothing():
    assert allowed_at("<string>", 1) == frozenset()


# ---------------------------------------------------------------- CUPTI, on a fake of it


@pytest.fixture
def cupti(monkeypatch):
    fake = FakeCupti()
    fake.install(monkeypatch)
    monkeypatch.setattr(CuptiCounter, "_registered", False)
    return fake


@pytest.fixture
def gpu(cupti):
    return TracedDevice(cupti)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("cuStreamSynchronize", "sync"),
        ("cuMemcpyDtoHAsync_v2", "dtoh"),
        ("cuMemcpyAsync", "dtoh"),  # its direction is not told
        ("cuMemAllocAsync", "alloc"),
        ("cuLaunchHostFunc", "host"),
        ("cuModuleLoadDataEx", "module_load"),
    ],
)
def test_a_call_past_the_ledger_raises_at_the_end_of_the_block(gpu, cupti, call, kind):
    gpu.ledger.begin("learn", 0)
    gpu.ledger.phase, gpu.ledger.op = "forward", "launch x"
    block = no_roundtrips(gpu)
    watch = block.__enter__()
    cupti.call(call)  # made, and the block goes on
    with pytest.raises(RoundTripError, match="made past the device's ledger") as caught:
        block.__exit__(None, None, None)
    error = caught.value
    assert watch.cupti == "CUPTI: watching"
    assert (error.driver_call, error.kind) == (call, kind)
    assert (error.phase, error.op) == ("forward", "launch x")
    assert error.file.endswith("traced_device.py")  # the one that makes the call here
    assert cupti.callback is None


def test_what_asks_for_no_round_trip_passes_cupti(gpu, cupti):
    with no_roundtrips(gpu):
        for call in ("cuGraphLaunch", "cuLaunchKernelEx", "cuMemcpyDtoDAsync_v2", "cuEventQuery"):
            cupti.call(call)


def test_the_same_comment_allows_past_the_ledger(gpu, cupti):
    with no_roundtrips(gpu):
        cupti.call("cuStreamSynchronize")  # guards: allow[GRD101, runtime] -- waits on purpose


def test_another_threads_calls_are_its_own(gpu, cupti):
    with no_roundtrips(gpu):
        other = threading.Thread(target=cupti.call, args=("cuStreamSynchronize",))
        other.start()
        other.join()


def test_the_blocks_own_error_is_not_hidden_by_cupti(gpu, cupti):
    def fails():
        cupti.call("cuStreamSynchronize")
        raise KeyError

    with pytest.raises(KeyError), no_roundtrips(gpu):
        fails()
    assert cupti.callback is None


def test_without_cupti_the_ledger_watches_alone_and_says_so(gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti", None)
    with no_roundtrips(gpu) as watch:
        assert "not installed" in watch.cupti
        with pytest.raises(RoundTripError):
            gpu.synchronize()
    with pytest.raises(CuptiUnavailableError), no_roundtrips(gpu, cupti=True):
        pass
    assert gpu.ledger.watch is None


def test_the_host_device_has_no_driver_to_watch(device):
    with no_roundtrips(device) as watch:
        assert watch.cupti == "CUPTI: no driver on this device"
    with pytest.raises(CuptiUnavailableError, match="host device"):
        no_roundtrips(device, cupti=True).__enter__()


def test_cupti_is_left_alone_when_asked(gpu, cupti):
    with no_roundtrips(gpu, cupti=False) as watch:
        assert watch.cupti == "CUPTI: not asked"
        assert cupti.callback is None


def test_what_the_ledger_refuses_cupti_need_not(gpu):
    """Refused before it is made, and raised from the call itself."""
    with no_roundtrips(gpu):
        with pytest.raises(RoundTripError) as caught:
            gpu.synchronize()
        assert not caught.value.driver_call


def test_an_allowed_call_is_allowed_to_reach_the_driver(gpu):
    x = gpu.upload(np.ones(2, np.float32))
    with no_roundtrips(gpu):
        x.to_host_checkpoint()  # guards: allow[GRD102, runtime] -- this test reads on purpose


def test_a_class_of_calls_is_forbidden_if_all_of_its_kinds_are():
    assert "memsets" not in _forbidden_classes(ROUND_TRIPS)
    assert "memsets" in _forbidden_classes(ROUND_TRIPS | {"memset"})
    assert "launches" not in _forbidden_classes(frozenset({"launch"}))
    every = _forbidden_classes(frozenset(kind for g in CALL_CLASSES for kind in g.kinds) | {"host"})
    assert set(every) == {g.name for g in CALL_CLASSES}
