"""A learning step at each stage, and in other libraries: ``make bench``, ``make gpu-bench``."""

from __future__ import annotations

import pytest
from interleaved import peer_labels, record, stage_labels

from onegraph.kernels.device import HostDevice
from onegraph.stages.registry import STAGES
from onegraph.trainer.bench import BenchSubject, named_size
from onegraph.trainer.cli.bench import cumulative_sets

#: M first: its times are the ones to have if a run is cut short.
GPU_SIZES = ("M", "S", "L", "REPLAY", "REPLAY-10M", "FULL")
LABELS = stage_labels()

on_gpu = [(size, label) for size in GPU_SIZES for label in (*LABELS, *peer_labels(size))]


@pytest.fixture(scope="module")
def host():
    return HostDevice()


def step_once(size, device, label):
    """Untimed, where benchmarks are disabled: warm up, step, and hold the step to its budget."""
    run = BenchSubject(named_size(size)).at(cumulative_sets()[LABELS.index(label)], device)
    try:
        run.step()
        counts = run.step()["learn"]
        run.budgets["learn"].check(counts.counts, run.program)
    finally:
        run.close()


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("size", ["S"])
def test_learning_step_on_the_host(benchmark, measurements, host, size, label):
    if benchmark.disabled:
        benchmark(step_once, size, host, label)
        return
    entry = record(benchmark, measurements.of(size, host, benchmark), label)
    assert entry.calls


# A peer's library may warn of itself (Inductor does, of float32 without TF32): no error of ours.
@pytest.mark.filterwarnings("default", "ignore:DeviceArray.to_host:DeprecationWarning")
@pytest.mark.gpu
@pytest.mark.parametrize(("size", "label"), on_gpu)
def test_learning_step_on_the_gpu(benchmark, measurements, cuda, size, label):
    if benchmark.disabled:
        if label not in LABELS:
            pytest.skip("the peers' steps are checked by test_peers.py")
        benchmark(step_once, size, cuda, label)
        return
    entry = record(benchmark, measurements.of(size, cuda, benchmark), label)
    if label == LABELS[len(STAGES) - 1]:
        assert entry.calls == {"graph_launch": 1}
