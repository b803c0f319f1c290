"""PyTorch and CuPy on the trainer's memory: the same addresses, the values of the last step."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from trainer.setups import fill, make, short, steps

from onegraph.kernels.device import Device, DeviceError

pytestmark = pytest.mark.gpu

COPIES = ("htod", "dtoh", "dtod")


@pytest.fixture
def torch():
    """PyTorch with a GPU."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    return module


def taken(torch, how: str, array):
    """`array` as a tensor, by one of the two protocols."""
    if how == "dlpack":
        return torch.from_dlpack(array)
    return torch.as_tensor(array, device="cuda")


def copies(device: Device) -> int:
    device.ledger.end()
    return sum(n for (_, _, kind), n in device.ledger.totals.items() if kind in COPIES)


@pytest.mark.parametrize("how", ["interface", "dlpack"])
def test_torch_sees_each_step_in_place(cuda, torch, how):
    trainer = fill(make(cuda, short()))
    steps(trainer, 1)  # what is captured and warmed up copies
    views = {name: trainer.view(name) for name in ("theta", "replay_state", "replay_action")}
    before = copies(cuda)
    seen = {name: taken(torch, how, view) for name, view in views.items()}
    assert copies(cuda) == before
    for name, tensor in seen.items():
        assert tensor.data_ptr() == views[name].ptr, name
        assert tuple(tensor.shape) == views[name].shape
        assert tensor.is_cuda
    before_step = seen["theta"].clone()
    torch.cuda.synchronize()  # read before the step writes
    steps(trainer, 1)
    trainer.wait()
    assert copies(cuda) == before
    assert not torch.equal(seen["theta"], before_step)
    for name, tensor in seen.items():
        np.testing.assert_array_equal(tensor.cpu().numpy(), trainer.workspace.read(name))
    trainer.close()


@pytest.mark.parametrize("how", ["interface", "dlpack"])
def test_a_part_of_an_array_begins_where_it_stands(cuda, torch, how):
    array = cuda.upload(np.arange(12, dtype=np.float32))
    cuda.synchronize()
    tensor = taken(torch, how, array.view(4, (2, 3)))
    assert tensor.data_ptr() == array.ptr + 16
    assert tensor.tolist() == [[4, 5, 6], [7, 8, 9]]
    cuda.free(array)


@pytest.mark.parametrize("how", ["interface", "dlpack"])
def test_a_tensor_outlives_the_trainer(cuda, torch, how):
    trainer = steps(fill(make(cuda, short())), 1)
    view, values = trainer.view("theta"), trainer.parameters()
    tensor = taken(torch, how, view)
    trainer.close()
    assert view.freed
    method = "__dlpack__" if how == "dlpack" else "__cuda_array_interface__"
    with pytest.raises(DeviceError, match="array 'theta' was freed"):
        getattr(view, method)()
    del view, trainer
    gc.collect()
    # What is allocated now must not land on the tensor.
    others = [cuda.upload(np.full(values.size, np.nan, np.float32)) for _ in range(8)]
    cuda.synchronize()
    np.testing.assert_array_equal(tensor.cpu().numpy(), values)
    for other in others:
        cuda.free(other)


def test_memory_that_was_lent_goes_back_in_the_end(cuda, torch):
    array = cuda.allocate((1 << 26,), "u8", "large")
    cuda.synchronize()
    free = cuda.memory_free()
    tensor = torch.as_tensor(array, device="cuda")
    cuda.free(array)
    assert cuda.memory_free() < free + (1 << 25)
    del array, tensor
    gc.collect()
    cuda.synchronize()
    assert cuda.memory_free() >= free + (1 << 25)


def test_dlpack_names_the_gpu(cuda):
    array = cuda.allocate((3,), "f32")
    kind, index = array.__dlpack_device__()
    assert (kind, index) == (2, 0)
    cuda.free(array)


def test_pinned_memory_is_the_hosts_to_dlpack(cuda):
    array = cuda.allocate((3,), "f64", pinned=True)
    array.host[...] = 5
    seen = np.from_dlpack(array)
    assert seen.ctypes.data == array.ptr
    cuda.free(array)
    np.testing.assert_array_equal(seen, [5, 5, 5])


def test_cupy_takes_it_in_place(cuda):
    cupy = pytest.importorskip("cupy")
    array = cuda.upload(np.arange(3, dtype=np.float32))
    seen = cupy.asarray(array)
    assert seen.data.ptr == array.ptr
    np.testing.assert_array_equal(cupy.asnumpy(seen), [0, 1, 2])
    cuda.free(array)
