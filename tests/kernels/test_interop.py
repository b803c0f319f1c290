"""What other libraries see of a device array, without a copy."""

from __future__ import annotations

import numpy as np
import pytest

from onegraph.kernels.device import DeviceError, HostDevice
from onegraph.kernels.device.base import DeviceArray


@pytest.fixture
def device():
    with HostDevice() as opened:
        yield opened


class Borrowed(HostDevice):
    """A GPU as far as an address and a stream go."""

    kind = "cuda"

    def _stream_pointer(self) -> int:
        return 77


def test_dlpack_shares_the_memory_of_the_host(device):
    array = device.upload(np.arange(6, dtype=np.float32).reshape(2, 3))
    seen = np.from_dlpack(array)
    assert np.shares_memory(seen, array.host)
    device.copy_htod(array, np.full((2, 3), 7, np.float32))
    np.testing.assert_array_equal(seen, np.full((2, 3), 7))
    assert array.__dlpack_device__() == (1, 0)


def test_dlpack_of_a_view_and_of_pinned_memory(device):
    array = device.upload(np.arange(6, dtype=np.int64))
    np.testing.assert_array_equal(np.from_dlpack(array.view(2, (2, 2))), [[2, 3], [4, 5]])
    pinned = device.allocate((3,), "f64", pinned=True)
    pinned.host[...] = 4
    np.testing.assert_array_equal(np.from_dlpack(pinned), [4, 4, 4])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "u8"])
def test_every_type_of_a_buffer_goes_through(device, dtype):
    array = device.allocate((4,), dtype)
    device.memset(array)
    assert np.from_dlpack(array).dtype == array.dtype


def test_nothing_of_it_is_a_copy_to_the_ledger(device):
    array = device.upload(np.zeros(3, np.float32))
    device.ledger.begin("learn", 0)
    np.from_dlpack(array)
    assert device.ledger.end().by_kind() == {}


def test_torch_takes_it(device):
    torch = pytest.importorskip("torch")
    array = device.upload(np.arange(3, dtype=np.float32))
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == array.host.ctypes.data
    device.memset(array)
    assert tensor.tolist() == [0, 0, 0]


def test_an_array_on_the_host_has_no_cuda_interface(device):
    array = device.upload(np.zeros(3, np.float32))
    assert not hasattr(array, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match=r"in host memory .* use DLPack"):
        array.__cuda_array_interface__  # noqa: B018


def test_the_cuda_interface_names_address_shape_type_and_stream():
    device = Borrowed()
    array = DeviceArray(device, "x", (2, 3), np.dtype(np.float32), ptr=4096)
    assert array.__cuda_array_interface__ == {
        "shape": (2, 3),
        "typestr": "<f4",
        "data": (4096, False),
        "version": 3,
        "strides": None,
        "stream": 77,
    }
    assert array.view(1, (2,)).__cuda_array_interface__["data"] == (4100, False)
    assert array.lent


def test_what_was_freed_is_not_given_away(device):
    array = device.upload(np.zeros(3, np.float32))
    part = array.view(0, (2,))
    device.free(array)
    for gone in (array, part):
        with pytest.raises(DeviceError, match="array 'array' was freed"):
            np.from_dlpack(gone)
    borrowed = DeviceArray(Borrowed(), "x", (1,), np.dtype(np.int32), ptr=4096)
    borrowed.freed = True
    with pytest.raises(DeviceError, match="__cuda_array_interface__ of x: array 'x' was freed"):
        borrowed.__cuda_array_interface__  # noqa: B018


def test_freeing_leaves_the_memory_to_who_took_it(device):
    array = device.upload(np.arange(3, dtype=np.float32))
    assert not array.lent
    seen = np.from_dlpack(array)
    assert array.lent
    device.free(array)
    assert array.freed
    del array
    np.testing.assert_array_equal(seen, [0, 1, 2])


def test_a_closed_device_gives_nothing_away():
    device = HostDevice()
    array = device.upload(np.zeros(3, np.float32))
    device.close()
    with pytest.raises(DeviceError, match="the device was closed"):
        np.from_dlpack(array)
