"""The choice of the fused kernels on a GPU, measured for real, and what comes of it."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from trainer.choosing import Talker, chooses_on_cuda
from trainer.setups import chain, fill, make, steps

from onegraph.kernels.device import Device
from onegraph.stages.registry import ALL
from onegraph.trainer import tuning
from onegraph.trainer.config import Config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.fusing import candidates
from onegraph.trainer.network import QNetwork
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.tuning import FusionChoice, choose

pytestmark = pytest.mark.gpu


def settings(**changes: object) -> Config:
    return chain(**{"network__hidden": [64, 32], "fusion": "auto"} | changes)


@pytest.fixture(autouse=True)
def times_of_its_own(monkeypatch, tmp_path):
    """Where times are kept; the compiled kernels stay where they are."""
    entry = tuning.cache_entry

    def moved(shapes, device):
        path, key = entry(shapes, device)
        return tmp_path / path.name, key

    monkeypatch.setattr(tuning, "cache_entry", moved)
    monkeypatch.setattr(tuning, "_measured", {})
    return tmp_path


def chosen(cuda: Device, config: Config) -> tuple[FusionChoice, list[str], list[str]]:
    """The choice, the names of all ways, and what was said."""
    environment, _ = build_environment(config)
    network = QNetwork.of(config, environment)
    shapes = Shapes(config, network, config.replay.capacity)
    said: list[str] = []
    choice = choose(shapes, environment, cuda, say=said.append)
    return choice, [step.name for step in candidates(shapes, cuda)], said


def test_every_way_is_timed_once(cuda, times_of_its_own):
    if cuda.largest_cluster == 1:
        pytest.skip(f"{cuda.name} forms no clusters")
    ledger = cuda.ledger
    choice, names, said = chosen(cuda, settings())
    assert choice.times is not None
    assert choice.times.refused == {}
    assert set(choice.times.median_us) == {"none", *names}
    assert all(us > 0 for us in choice.times.median_us.values())
    assert choice.name == choice.times.fastest
    assert len(said) == 1
    assert cuda.ledger is ledger
    (file,) = times_of_its_own.glob("fusion-*.json")
    assert json.loads(file.read_text())["key"]["device"] == cuda.name
    again, _, said = chosen(cuda, settings())
    assert (again.name, again.times, said) == (choice.name, choice.times, [])


def test_processes_that_start_together_measure_once(times_of_its_own):
    """Each has a GPU before either chooses."""
    with (
        closing(Talker(chooses_on_cuda, times_of_its_own)) as one,
        closing(Talker(chooses_on_cuda, times_of_its_own)) as other,
    ):
        assert one.hears() == other.hears()
        one.let_go()
        other.let_go()
        choices = [one.hears(), other.hears()]
    (file,) = times_of_its_own.glob("fusion-*.json")
    assert len({choice.split()[0] for choice in choices}) == 1
    sources = sorted(choice.split(" ", 1)[1] for choice in choices)
    assert sources == [f"(measured before, {file})", "(measured now)"]


def test_memory_comes_back_when_ways_were_measured(cuda):
    """Of the whole GPU: it is for a process that has it to itself, as the other of that name is."""
    free = cuda.memory_free()
    choice, _, _ = chosen(cuda, settings())
    assert choice.times is not None
    assert cuda.memory_free() >= free - (64 << 20)


def test_the_ways_of_a_gpu_without_clusters(cuda, monkeypatch):
    monkeypatch.setattr(cuda, "largest_cluster", 1)
    choice, names, said = chosen(cuda, settings())
    assert names[:2] == ["wide", "whole"]
    assert not any(name.startswith("rows") for name in names)
    assert choice.times is not None
    assert set(choice.times.median_us) == {"none", *names}
    assert len(said) == 1


def test_runs_that_choose_by_the_same_times_are_one(cuda):
    ends = []
    for _ in range(2):
        trainer = steps(fill(make(cuda, settings(), ALL)), 20)
        assert trainer.fusion is not None
        ends.append((trainer.fusion.name, trainer.parameters().tobytes()))
        trainer.close()
    assert ends[0] == ends[1]


def test_measuring_disturbs_no_trainer_that_runs(cuda):
    """Another one is made, and measured for, between its steps."""
    config = settings(fusion="none")
    alone = steps(fill(make(cuda, config, ALL)), 10)
    wanted = alone.parameters().tobytes()
    alone.close()
    first = steps(fill(make(cuda, config, ALL)), 5)
    second = make(cuda, settings(), ALL)
    assert second.fusion is not None
    steps(first, 5)
    assert first.parameters().tobytes() == wanted
    first.close()
    second.close()
