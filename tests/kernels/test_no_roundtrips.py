"""`no_roundtrips`: what it refuses, what it says, and what a comment allows."""

import numpy as np
import pytest

from onegraph.guards.runtime import allowed_at
from onegraph.kernels.device import HostDevice, RoundTripError, no_roundtrips
from onegraph.kernels.device.no_roundtrips import CODES, ROUND_TRIPS


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
