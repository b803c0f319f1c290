"""A learning step at each stage, side by side: ``make bench``, ``make gpu-bench``."""

from __future__ import annotations

import pytest
import stage_runs

from onegraph.kernels.device import HostDevice
from onegraph.stages import STAGES

SMALL = {"learn.batch_size": 64, "network.hidden": [64, 64], "replay.capacity": 4096}


def label(number: int) -> str:
    return f"0-{number} {STAGES[number].name}"


@pytest.mark.parametrize("number", range(len(STAGES)), ids=label)
def test_learning_step_on_the_host(benchmark, number):
    trainer = stage_runs.prepared(HostDevice(), SMALL, frozenset(range(1, number + 1)))
    benchmark.group = "learning step, NumPy"
    counts = benchmark(trainer.learn)
    assert sum(counts.by_kind().values()) > 0


@pytest.mark.gpu
def test_learning_step_on_the_gpu(cuda, capsys):
    """The table of the stages at the medium size; the last of them is one graph launch."""
    trainers = [
        (
            label(s.number),
            stage_runs.prepared(cuda, stage_runs.MEDIUM, frozenset(range(1, s.number + 1))),
        )
        for s in STAGES
    ]
    times = stage_runs.interleaved(trainers, rounds=15, steps=50)
    with capsys.disabled():
        print(f"\n{cuda.name}, batch 64, hidden 256-256, capacity 2^20, states 64 wide")
        stage_runs.table(times, print)
    assert dict(times[-1].calls) == {"graph_launch": 1}
