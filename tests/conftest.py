"""What all tests share: light collections of garbage, and no GPU tests where there is no GPU."""

import functools
import gc
import os

import pytest

# What several test files share, before any of them imports it.
pytest.register_assert_rewrite(
    "device_rules",
    "offline.contract",
    "page_reader",
    "replay.contract",
    "timing_rules",
    "trainer.contract",
    "trainer.fused_contract",
    "trainer.gym_contract",
    "trainer.kill",
    "trainer.proofs",
    "trainer.resuming",
    "trainer.setups",
)


@functools.cache
def missing_gpu() -> str:
    """Why no CUDA device can be used; empty if one can."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        return f"cuda-bindings is not installed ({error})"
    try:
        (result,) = driver.cuInit(0)
    except RuntimeError as error:  # the driver library itself is absent
        return f"no CUDA driver ({error})"
    if result != driver.CUresult.CUDA_SUCCESS:
        return f"cuInit answered {result.name}"
    result, count = driver.cuDeviceGetCount()
    if result != driver.CUresult.CUDA_SUCCESS or count == 0:
        return "no CUDA device"
    return ""


@pytest.fixture(scope="module", autouse=True)
def _light_collections() -> None:
    """Keep what is there before a module's tests out of their collections of garbage.

    Thousands of collected tests are. Samples of a benchmark and the tests of captures collect again
    and again, and a benchmark lets everything thaw when it is over.
    """
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    if reason := missing_gpu():
        if os.environ.get("ONEGRAPH_REQUIRE_GPU"):
            pytest.fail(f"needs a GPU: {reason}", pytrace=False)
        pytest.skip(f"needs a GPU: {reason}")
