"""A GPU for the tests of this folder, or the reason why there is none."""

from __future__ import annotations

import os

import pytest


def open_cuda(**options):
    """A `CudaDevice`; skips the test where there is none, fails it where one is required."""
    try:
        from onegraph.kernels.device import DeviceUnavailableError
        from onegraph.kernels.device.cuda import CudaDevice
    except ImportError as error:
        return _none(str(error))
    try:
        return CudaDevice(**options)
    except DeviceUnavailableError as error:
        return _none(str(error))


def _none(reason: str):
    if os.environ.get("ONEGRAPH_REQUIRE_GPU"):
        pytest.fail(f"needs a GPU: {reason}", pytrace=False)
    pytest.skip(f"needs a GPU: {reason}")


@pytest.fixture(scope="module")
def cuda():
    """One device for the tests of a module."""
    with open_cuda() as device:
        yield device


@pytest.fixture
def device():
    """A device of a test's own, with an empty ledger and nothing loaded."""
    with open_cuda() as opened:
        yield opened


@pytest.fixture(scope="module")
def cublaslt():
    """A device that gives every matmul to cuBLASLt."""
    pytest.importorskip("nvmath.bindings.cublasLt", exc_type=ImportError)
    with open_cuda(gemm="cublaslt") as device:
        yield device
