"""Peaks of GPUs from their attributes, against what NVIDIA publishes."""

import pytest

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.facts import DeviceFacts


def facts(capability, multiprocessors, ghz, memory_ghz, bits):
    return DeviceFacts("GPU", capability, multiprocessors, ghz * 1e9, memory_ghz * 1e9, bits, 0)


@pytest.mark.parametrize(
    ("gpu", "float32", "tf32", "bandwidth"),
    [
        # TFLOP/s and GB/s of the data sheets. The tensor cores' peak is at a lower clock than the
        # float32 pipes' on an H100 (1.83 against 1.98 GHz), hence the two rows.
        (facts((9, 0), 132, 1.98, 2.619, 5120), 66.9, None, 3352),
        (facts((9, 0), 132, 1.83, 2.619, 5120), None, 494.7, 3352),
        (facts((8, 0), 108, 1.41, 1.593, 5120), 19.5, 156, 2039),
        (facts((8, 9), 142, 2.52, 9.0, 384), 91.6, 183, 864),
    ],
    ids=["H100", "H100 tensor cores", "A100 80 GB", "L40S"],
)
def test_peaks_are_those_of_the_data_sheets(gpu, float32, tf32, bandwidth):
    assert gpu.memory_bytes_per_s == pytest.approx(bandwidth * 1e9, rel=2e-3)
    for precision, tflops in (("float32", float32), ("tf32", tf32)):
        if tflops is not None:
            assert gpu.flops_per_s(precision) == pytest.approx(tflops * 1e12, rel=2e-3)


def test_what_is_not_known_is_zero():
    unknown = facts((99, 0), 10, 1.0, 0.0, 512)
    assert unknown.flops_per_s("float32") == unknown.flops_per_s("tf32") == 0
    assert unknown.memory_bytes_per_s == 0
    turing = facts((7, 5), 40, 1.59, 5.0, 256)
    assert turing.flops_per_s("float32") == pytest.approx(8.14e12, rel=1e-3)
    assert turing.flops_per_s("tf32") == 0


def test_the_host_has_no_peaks():
    assert HostDevice().facts() is None
