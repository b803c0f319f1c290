"""A run that is killed goes on, whenever that was, and ends as the run that was not."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onegraph.trainer.cli import main
from trainer import kill

pytestmark = pytest.mark.slow

#: What depends on the clock.
CLOCK = ("seconds", "step_ms", "phases")

EPOCHS = 12


def left(folder):
    """All that a run leaves, by name, without the times."""
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    found.pop("metrics.jsonl.bak", None)
    lines = found.pop("metrics.jsonl").read_text().splitlines()
    figures = [{k: v for k, v in json.loads(x).items() if k not in CLOCK} for x in lines]
    return {name: path.read_bytes() for name, path in found.items()} | {"figures": figures}


@pytest.fixture
def errors(capsys):
    return lambda: capsys.readouterr().err


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """What the run leaves that is never killed, and its seconds of training."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    folder.mkdir()
    process = kill.begun(folder, [*kill.arguments(EPOCHS), "--run-dir", str(folder)])
    began = time.monotonic()
    assert process.wait() == 0
    seconds = time.monotonic() - began
    whole = left(folder)
    assert sorted(whole) == [
        "checkpoints/best.safetensors",
        "checkpoints/last-1.safetensors",
        "checkpoints/last.safetensors",
        "config.toml",
        "figures",
    ]
    assert len(whole["figures"]) == EPOCHS
    return whole, seconds


def kill_and_compare(seed, straight, folder, errors, most, earliest=0.0):
    """Kill a run up to `most` times, at moments that the seed gives; then let it end.

    Args:
        earliest: of the moments, in times that a whole run takes from when it begins to train;
            below 0: while the program starts.
    """
    whole, seconds = straight
    folder.mkdir()
    chance = random.Random(seed)
    new = kill.arguments(EPOCHS)
    command, ways, ended = [*new, "--run-dir", str(folder)], [], False
    for _ in range(chance.randint(1, most)):
        moment = chance.uniform(earliest, 1.0) * seconds
        if ended := not kill.killed_after(moment, folder, command):
            break
        command = kill.way_on(folder, new, errors)
        ways.append("resumed" if "--resume" in command else "anew")
    if not ended:
        assert main(command) == 0, errors()
    assert left(folder) == whole, f"seed {seed}: {ways}"
    return ways


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_is_killed_at_any_moment_goes_on_to_the_same_end(
    seed, straight, tmp_path, errors
):
    kill_and_compare(seed, straight, tmp_path / "run", errors, most=1)


@pytest.mark.soak
def test_a_hundred_killed_runs_go_on_to_the_same_end(straight, tmp_path, errors, capsys):
    """Those that go on are killed again, up to twice."""
    ways = [
        kill_and_compare(seed, straight, tmp_path / str(seed), errors, most=3, earliest=-0.2)
        for seed in range(100, 200)
    ]
    flat = [way for run in ways for way in run]
    with capsys.disabled():
        counts = f"{flat.count('resumed')} resumed, {flat.count('anew')} started anew"
        print(f"\n{len(ways)} runs, {len(flat)} kills: {counts}")
    assert flat.count("resumed") > 50, "most kills have to hit a run that has a checkpoint"


def at_steps(tmp_path, errors, stride, first):
    """Kill runs of three epochs at steps of writing; gives how many were killed."""
    new = kill.arguments(3)
    whole = tmp_path / "whole"
    assert main([*new, "--run-dir", str(whole)]) == 0
    wanted = left(whole)
    script = [sys.executable, "-P", kill.__file__, str(tmp_path), str(stride), str(first), *new]
    said = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    reports = [json.loads(line) for line in said.splitlines()]
    assert reports[-1]["status"] == 0, "the run that is past the last step ends"
    ways = []
    for report in reports[:-1]:
        assert report["killed"], report
        folder = tmp_path / str(report["step"])
        ways.append(kill.go_on(folder, new, errors))
        assert left(folder) == wanted, (report, ways[-1])
    return ways


def test_a_run_that_is_killed_at_a_step_of_writing_goes_on_to_the_same_end(tmp_path, errors):
    """Every eleventh step; all of them in `make soak`."""
    ways = at_steps(tmp_path, errors, 11, 4)
    assert ways[0] == "started anew"
    assert ways[-1] == "resumed"
    assert len(ways) > 5


@pytest.mark.soak
def test_a_run_that_is_killed_at_every_step_of_writing_goes_on(tmp_path, errors):
    assert len(at_steps(tmp_path, errors, 1, 1)) > 50


def test_a_run_that_is_killed_while_it_goes_on_from_a_kill_is_no_dead_end(tmp_path, errors):
    """Also one that starts anew after a kill, and is killed before it has made its config."""
    folder = Path(tmp_path / "run")
    folder.mkdir()
    (folder / ".lock").touch()
    assert kill.go_on(folder, kill.arguments(3), errors) == "started anew"
