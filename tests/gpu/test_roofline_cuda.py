"""The floors of a step on a GPU: attributes, the latency of a node, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from onegraph.kernels.device import Device
from onegraph.stages.peaks import copied_bytes_per_s, measured_peaks, node_latency
from onegraph.trainer.cli import main

pytestmark = pytest.mark.gpu


def test_the_driver_tells_what_the_gpu_is_made_of(cuda: Device) -> None:
    facts = cuda.facts()
    assert facts is not None
    assert facts.name == cuda.name
    assert facts.capability >= (7, 0)
    assert facts.multiprocessors > 0
    assert facts.clock_hz > 1e8
    assert facts.l2_bytes > 0
    print(facts, facts.memory_bytes_per_s, facts.flops_per_s("float32"))


@pytest.mark.slow
def test_peaks_are_measured(cuda: Device) -> None:
    """Times of a machine that others may use prove nothing: they are there, and are printed."""
    peaks = measured_peaks(cuda, rounds=4)
    assert peaks is not None
    print(peaks.words())
    assert math.isfinite(node_latency(cuda, rounds=4).median)
    copied = copied_bytes_per_s(cuda, rounds=4)
    print(f"a copy: {copied / 1e9:,.0f} GB/s")
    assert math.isfinite(copied)


@pytest.mark.slow
def test_the_command_shows_floors(cuda: Device, tmp_path: Path) -> None:
    del cuda  # skips without a GPU
    path = tmp_path / "found.json"
    command = ["bench", "--roofline", "--size", "S", "--stages", "6", "--stages", "all"]
    assert main([*command, "--rounds", "2", "--device", "cuda", "--json", str(path)]) == 0
    (found,) = json.loads(path.read_text())["rooflines"]
    for row in found["rows"]:
        assert {"bytes", "nodes"} <= set(row["floors_us"])
        assert row["share"] > 0
