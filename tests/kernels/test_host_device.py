"""The rules of every device on the host device, and what is the host device's own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from device_rules import *  # noqa: F403

from onegraph.kernels.device import DeviceError, DeviceUnavailableError, HostDevice, open_device
from onegraph.kernels.device.base import Matmul


@pytest.fixture
def device():
    with HostDevice() as opened:
        yield opened


def test_memory_cap():
    device = HostDevice(memory_bytes=1000)
    first = device.allocate((100,), "f64", "first")
    assert device.memory_free() == 200
    with pytest.raises(DeviceError, match="800 bytes asked for, 200 free") as caught:
        device.allocate((100,), "f64", "second")
    assert caught.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
    device.free(first)
    device.allocate((125,), "f64", "third")
    assert device.memory_free() == 0


def test_fresh_memory_is_poisoned():
    device = HostDevice()
    assert np.isnan(device.allocate((2,), "f32").host).all()
    assert (device.allocate((2,), "i32").host == -1515870811).all()  # 0xa5a5a5a5


def test_twin_may_not_write_its_inputs():
    device = HostDevice()
    x = device.upload(np.zeros(2, np.float32))
    launch = device.prepare("relu_epilogue", {"extra": x, "out": x, "n": 2, "grad": 0})
    assert not launch.payload.keywords["extra"].flags.writeable
    assert launch.payload.keywords["out"].flags.writeable


@pytest.mark.parametrize("epilogue", ["bias", "bias_relu", "bias_grad"])
def test_infinities_that_cancel_are_nan_without_a_warning(epilogue):
    device = HostDevice()
    a, b = (device.upload(np.array(x, np.float32)) for x in ([[1, 1]], [[np.inf], [-np.inf]]))
    extra = device.upload(np.array([-np.inf], np.float32))
    out = device.upload(np.zeros((1, 1), np.float32))
    device.matmul(Matmul(1, 1, 2, epilogue=epilogue), a, b, out, extra)
    assert np.isnan(out.host)
    assert np.isnan(extra.host) == (epilogue == "bias_grad")


def test_open_by_name():
    assert open_device("host").kind == "host"
    with pytest.raises(ValueError, match="choose auto, cuda or host"):
        open_device("tpu")


def test_cuda_without_its_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "onegraph.kernels.device.cuda", None)
    assert open_device("auto").kind == "host"
    with pytest.raises(DeviceUnavailableError, match=r"onegraph\[cuda\].*--device host"):
        open_device("cuda")


def test_cuda_without_a_gpu():
    """Whether the driver or only the GPU is missing: one error, with the reason and a way out."""
    pytest.importorskip("cuda.core")
    code = (
        "from onegraph.kernels.device import DeviceUnavailableError, open_device\n"
        "try:\n    open_device('cuda')\n"
        "except DeviceUnavailableError as error:\n    print('refused:', error)\n"
        "print(open_device('auto').kind)\n"
    )
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "refused: GPU 0 can't be used" in done.stdout
    assert "--device host" in done.stdout
    assert done.stdout.endswith("host\n")
