"""The event files of a run, read back record by record."""

import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from trainer.setups import make, market, short

from onegraph.kernels.device import HostDevice
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.cli import main
from onegraph.trainer.event_log import TensorBoardUnavailableError, require_tensorboard, scalars
from onegraph.trainer.loop import Loop

pytest.importorskip("tensorboardX")

RUN = {"loop__total_env_steps": 64 + 4 * (2 * 16 - 1), "loop__timed_steps": 4}


def records(path):
    """The payloads of a file of TFRecords: length, its checksum, payload, its checksum."""
    content = path.read_bytes()
    while content:
        size = int.from_bytes(content[:8], "little")
        yield content[12 : 12 + size]
        content = content[16 + size :]


def events(folder):
    from tensorboardX.proto.event_pb2 import Event

    paths = sorted((folder / "tensorboard").iterdir())
    return [Event.FromString(record) for path in paths for record in records(path)]


def curves(folder):
    """Points (step, value) by tag, with what a restart hides left out as TensorBoard does."""
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder):
        if event.session_log.status == 1:  # START
            for tag, points in found.items():
                found[tag] = [p for p in points if p[0] < event.step]
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_scalars_of_a_summary():
    summary = {
        "epoch": 3,
        "learn_steps": 30,
        "env_steps": 120,
        "seconds": 1.5,
        "loss": 0.25,
        "td_mean": None,
        "score": 2.0,
        "phases": {
            "last": {"forward": 9.0},
            "mean": {"forward": 0.5, "adam": None},
            "timed_steps": 4,
            "diagnosis": "words",
            "step_ms": 1.0,
            "busy_share": 0.75,
            "wall_ms": None,
            "phases_ms": 0.5,
        },
        "validation": {"sharpe": 1.25, "bars": 60},
        "extra": {"success_rate": 0.5},
        "parts": {"aux_losses": {"denoise": 0.125}, "vaccine_removed": None},
        "stages": "0-6",
        "device": "host",
    }
    assert dict(scalars(summary)) == {
        "train/learn_steps": 30.0,
        "time/seconds": 1.5,
        "train/loss": 0.25,
        "score": 2.0,
        "phase/forward": 0.5,
        "time/timed/step_ms": 1.0,
        "time/timed/busy_share": 0.75,
        "time/timed/phases_ms": 0.5,
        "validation/sharpe": 1.25,
        "validation/bars": 60.0,
        "episode/success_rate": 0.5,
        "parts/aux_losses/denoise": 0.125,
    }


@pytest.mark.parametrize("config", [short, market], ids=["chain", "market"])
def test_an_epoch_is_a_point_of_every_curve(tmp_path, config):
    made = config(**RUN, loop__tensorboard=True, loop__epoch_steps=16, loop__start_steps=64)
    Loop(make(HostDevice(), made), tmp_path).run()
    said, found = lines(tmp_path), curves(tmp_path)
    steps = [line["env_steps"] for line in said]
    assert steps == [64 + 4 * 15, 64 + 4 * 31]
    pairs = {
        "train/loss": "loss",
        "train/grad_norm": "grad_norm",
        "train/q_mean": "q_mean",
        "train/td_mean": "td_mean",
        "train/learning_rate": "learning_rate",
        "train/epsilon": "epsilon",
        "time/step_ms": "step_ms",
        "score": "score",
    }
    for tag, name in pairs.items():
        wanted = [(x["env_steps"], pytest.approx(x[name], rel=1e-6)) for x in said]
        assert found[tag] == wanted, tag
    assert sum(tag.startswith("phase/") for tag in found) == 12
    if config is market:
        assert [v for _, v in found["validation/sharpe"]] == [
            pytest.approx(x["validation"]["sharpe"], rel=1e-6) for x in said
        ]
    else:
        assert "episode/max_q_error" in found


def test_going_back_hides_what_the_run_had_past_it(tmp_path):
    config = short(**RUN, loop__tensorboard=True)
    Loop(make(HostDevice(), config), tmp_path).run()
    whole = curves(tmp_path)
    saved = load_checkpoint(tmp_path / "checkpoints" / "last-1.safetensors")
    again = make(HostDevice(), config)
    again.restore(saved.state, saved.progress)
    Loop(again, tmp_path).run()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    found = curves(tmp_path)
    for tag in ("train/loss", "score"):
        assert found[tag] == whole[tag]
        assert all(a < b for a, b in pairwise(step for step, _ in found[tag]))


def test_without_it_no_file_is_written_and_the_package_not_imported(tmp_path):
    script = (
        "import sys; from onegraph.trainer.cli import main; code = main(sys.argv[1:]);"
        " assert 'tensorboardX' not in sys.modules; sys.exit(code)"
    )
    fields = {"loop.total_env_steps": 96, "loop.start_steps": 64, "replay.capacity": 320}
    sets = [part for name, value in fields.items() for part in ("--set", f"{name}={value}")]
    command = ["train", "--config", "chain", "--device", "host", *sets, "--run-dir", "x"]
    subprocess.run([sys.executable, "-P", "-c", script, *command], cwd=tmp_path, check=True)
    assert not (tmp_path / "x" / "tensorboard").exists()


@pytest.mark.parametrize(
    ("config", "flag", "written"),
    [
        ("false", "--tensorboard", True),
        ("true", "--no-tensorboard", False),
        ("true", None, True),
    ],
)
def test_the_option_goes_before_the_config(tmp_path, monkeypatch, config, flag, written):
    monkeypatch.chdir(tmp_path)
    sets = ["--set", "loop.total_env_steps=2100", "--set", f"loop.tensorboard={config}"]
    arguments = ["train", "--config", "chain", "--device", "host", *sets, "--run-dir", "x"]
    assert main([*arguments, *([flag] if flag else [])]) == 0
    assert (tmp_path / "x" / "tensorboard").exists() == written


def test_where_the_package_is_absent_the_run_does_not_begin(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TensorBoardUnavailableError, match=re.escape("'onegraph[tensorboard]'")):
        require_tensorboard()
    arguments = ["train", "--config", "chain", "--device", "host", "--tensorboard"]
    assert main([*arguments, "--run-dir", "x"]) == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("onegraph: error: event files need tensorboardX (")
    assert "pip install 'onegraph[tensorboard]'" in err
    assert not (tmp_path / "x").exists()
