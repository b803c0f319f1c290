"""The device of the benchmarks, and the interleaved times that they record."""

from __future__ import annotations

import io

import pytest
from interleaved import Measurements
from rich.console import Console

from onegraph.stages.bench_table import times_table

MEASURED = pytest.StashKey[Measurements]()


@pytest.fixture(scope="session")
def cuda():
    """The GPU; benchmarks that ask for it are marked ``gpu``."""
    from onegraph.kernels.device.cuda import CudaDevice

    with CudaDevice() as device:
        yield device


@pytest.fixture(scope="session")
def measurements(request):
    """One interleaved run for each size and device, taken when its first benchmark asks."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def show(result):
        # At once: a run that is cut short has shown what it measured.
        with capture.global_and_fixture_disabled():
            print("\n" + text_of(result), flush=True)

    return request.config.stash.setdefault(MEASURED, Measurements(show))


def text_of(result):
    """The short table, and who was absent."""
    text = io.StringIO()
    Console(file=text, width=118, highlight=False).print(times_table(result))
    absent = [f"skipped: {label}: {why}\n" for label, why in result.skipped.items()]
    return text.getvalue() + "".join(absent)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter, config):
    """The short tables, after pytest-benchmark's own."""
    measured = config.stash.get(MEASURED, None)
    for result in measured.results() if measured else ():
        terminalreporter.write("\n" + text_of(result))
