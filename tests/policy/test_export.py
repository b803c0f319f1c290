"""``onegraph export``: a checkpoint is enough, and what can be wrong with it is said."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
from policy.served import Served
from safetensors.numpy import save_file
from trainer.setups import fill, full_market, make, market, short, steps, tabular

from onegraph.kernels.device import HostDevice
from onegraph.trainer import checkpoint as checkpoints
from onegraph.trainer.checkpoint import (
    CHECKSUM,
    FIRST_FORMAT,
    FORMAT,
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)
from onegraph.trainer.cli import main
from onegraph.trainer.config import load_config
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.market import load_sample
from onegraph.trainer.policy import whole_file
from onegraph.trainer.policy.errors import ExportError
from onegraph.trainer.policy.facts import FeatureScaling, PolicyFacts
from onegraph.trainer.policy.onnx_graph import build_model
from onegraph.trainer.policy.policy import policy_of, read_policy
from onegraph.trainer.trainer import Trainer

pytest.importorskip("onnx")


def saved(folder, config):
    path = folder / "run" / "checkpoints" / "last.safetensors"
    trainer = steps(fill(make(HostDevice(), config)), 3)
    save_checkpoint(path, trainer)
    return path, trainer


@pytest.fixture
def chain_file(tmp_path):
    return saved(tmp_path, short())[0]


def about_of(path):
    """What the checkpoint says of itself, as a file without a checksum says it."""
    with checkpoints.safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()[FORMAT])
    del about[CHECKSUM]
    return about


def written(path, state, about):
    """A checkpoint of the first format, which has no checksum that a change would break."""
    save_file(state, path, metadata={FIRST_FORMAT: json.dumps(about)})
    return path


def without_facts(path):
    """The checkpoint as it was before it kept what the policy needs."""
    loaded, about = load_checkpoint(path), about_of(path)
    del about["policy"]
    return written(path, loaded.state, about)


def refusal(capsys, *arguments):
    code = main(["export", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert code == 1
    assert out == ""
    return err.splitlines()[-1].removeprefix("onegraph: error: ")


def test_both_files_at_once(tmp_path, capsys, chain_file):
    onnx, weights = tmp_path / "new" / "p.onnx", tmp_path / "w.safetensors"
    run = chain_file.parent.parent
    assert main(["export", str(run), "--onnx", str(onnx), "--weights", str(weights)]) == 0
    out, err = capsys.readouterr()
    assert f"{chain_file}: 3 learning steps" in err
    assert f"{onnx}: ONNX, opset 17" in out
    assert "inputs: observation float32 [N, 5]" in out
    assert "outputs: action int64 [N], q float32 [N, 2]" in out
    assert f"{weights}: safetensors, 6 tensors" in out
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [
        "last.safetensors",
        "p.onnx",
        "w.safetensors",
    ]


@pytest.mark.parametrize("config", [short(), market(), full_market()], ids=["chain", "dqn", "full"])
def test_the_checkpoint_gives_the_trainers_policy(tmp_path, config):
    path, trainer = saved(tmp_path, config)
    one, two = (
        build_model(policy).SerializeToString(deterministic=True)
        for policy in (read_policy(path), policy_of(trainer))
    )
    assert one == two


def test_a_market_is_exported_without_its_data(tmp_path):
    """The file is gone, the checkpoint has what it takes."""
    data = tmp_path / "bars.csv"
    bars = load_sample("IBM")
    lines = [
        f"{np.datetime64(int(t), 'ns').astype('datetime64[D]')},{o},{h},{low},{c},{int(v)}"
        for t, o, h, low, c, v in zip(
            bars.time, bars.open, bars.high, bars.low, bars.close, bars.volume, strict=True
        )
    ]
    data.write_text("\n".join(["Date,Open,High,Low,Close,Volume", *lines]))
    config = load_config(
        "demo",
        {"env.lanes": 4, "network.hidden": [8], "env.market.data": str(data)}
        | {"replay.capacity": 300, "learn.batch_size": 8, "loop.start_steps": 64},
    )
    trainer = steps(fill(Trainer(config, HostDevice(), frozenset(range(1, 7)))), 1)
    save_checkpoint(tmp_path / "x", trainer)
    data.unlink()
    facts = read_policy(tmp_path / "x").facts
    assert facts.scaling is not None
    assert facts.scaling.names[0] == "log_return_1"
    with pytest.raises(ExportError) as caught:
        read_policy(without_facts(tmp_path / "x"))
    message = str(caught.value)
    assert "it was written before checkpoints kept what a policy needs" in message
    assert str(data) in message
    assert "onegraph train --resume" in message


@pytest.mark.parametrize("config", [short(), market()], ids=["chain", "market"])
def test_an_old_checkpoint_is_rebuilt_from_its_data(tmp_path, config):
    path, trainer = saved(tmp_path, config)
    assert load_checkpoint(path).policy is not None
    assert load_checkpoint(without_facts(path)).policy is None
    assert read_policy(path).facts == policy_of(trainer).facts


def test_facts_that_are_damaged(tmp_path, chain_file):
    loaded = load_checkpoint(chain_file)
    about = about_of(chain_file)
    about["policy"]["action_names"] = []
    written(chain_file, loaded.state, about)
    with pytest.raises(CheckpointError, match="this is no whole checkpoint"):
        load_checkpoint(chain_file)


def test_the_file_is_served(tmp_path, chain_file):
    assert main(["export", str(chain_file), "--onnx", str(tmp_path / "p.onnx")]) == 0
    served = Served((tmp_path / "p.onnx").read_bytes())
    assert served.inputs == ["observation"]
    assert served.run(observation=np.eye(5, dtype=np.float32))["q"].shape == (5, 2)


class NumberedStates(TabularEnvironment):
    """An environment of one's own, whose observations are numbers and whose actions have names."""

    def policy_facts(self):
        return PolicyFacts(
            observation_width=self.observation_width, action_names=("left", "right"), one_hot=True
        )


def test_an_environment_says_what_its_policy_needs(tmp_path):
    made = tabular(short())
    own = NumberedStates(**{f.name: getattr(made, f.name) for f in dataclasses.fields(made)})
    trainer = steps(fill(make(HostDevice(), short(), environment=own)), 2)
    save_checkpoint(tmp_path / "x", trainer)
    model = build_model(read_policy(tmp_path / "x"))
    about = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(about["action_names"]) == ["left", "right"]
    found = Served(model.SerializeToString()).run(observation=np.arange(5))
    np.testing.assert_allclose(found["q"], trainer.q_values(np.eye(5, dtype="f4")), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_names": ()}, "a set of actions that is empty"),
        ({"observation_width": 0}, "an observation"),
        ({"positions": (1.0,)}, "1 positions for 2 actions"),
        ({"position_features": ("held",)}, "0 features and 1 more columns make no observation"),
        ({"positions": (0.0, float("nan"))}, "finite number"),
        ({"unknown": 1}, "not permitted"),
    ],
)
def test_facts_that_contradict_themselves(changes, message):
    with pytest.raises(ValueError, match=message):
        PolicyFacts(**{"observation_width": 3, "action_names": ("a", "b")} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": (0.0, 1.0)}, "2 means"),
        ({"std": (-1.0,)}, "below 0"),
        ({"clip": 0.0}, "not above"),
    ],
)
def test_a_scaling_that_fits_no_features(changes, message):
    with pytest.raises(ValueError, match=message):
        FeatureScaling(**{"names": ("a",), "mean": (0.0,), "std": (1.0,), "clip": 10.0} | changes)


# ------------------------------------------------------------------------ what can't be exported


def test_nothing_to_write(capsys, chain_file):
    assert "there is nothing to write; say --onnx" in refusal(capsys, chain_file)


def test_not_a_checkpoint(tmp_path, capsys):
    (tmp_path / "x").write_text("something else")
    wanted = tmp_path / "p.onnx"
    assert "this is no whole checkpoint" in refusal(capsys, tmp_path / "x", "--onnx", wanted)
    assert "there is no such checkpoint" in refusal(capsys, tmp_path / "y", "--onnx", wanted)
    assert not wanted.exists()


def test_without_the_onnx_package(tmp_path, capsys, monkeypatch, chain_file):
    monkeypatch.setitem(sys.modules, "onnx", None)
    wanted, weights = tmp_path / "p.onnx", tmp_path / "w"
    line = refusal(capsys, chain_file, "--onnx", wanted, "--weights", weights)
    assert "run pip install 'onegraph[onnx]'" in line
    assert not wanted.exists()
    assert not weights.exists()
    assert main(["export", str(chain_file), "--weights", str(weights)]) == 0


@pytest.mark.parametrize("option", ["--onnx", "--weights"])
def test_a_place_that_can_not_be_written(tmp_path, capsys, chain_file, option):
    (tmp_path / "file").write_text("")
    line = refusal(capsys, chain_file, option, tmp_path / "file" / "p")
    assert "it could not be written" in line
    line = refusal(capsys, chain_file, option, tmp_path)  # a folder
    assert "it could not be written" in line


def test_a_write_that_fails_leaves_what_was_there(tmp_path, capsys, monkeypatch, chain_file):
    wanted = tmp_path / "p.onnx"
    wanted.write_text("before")

    def full_disk(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole_file.os, "fsync", full_disk)
    assert "No space left on device" in refusal(capsys, chain_file, "--onnx", wanted)
    assert wanted.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["p.onnx"]


def test_the_checkpoint_is_not_written_over(capsys, chain_file):
    before = chain_file.read_bytes()
    line = refusal(capsys, chain_file.parent.parent, "--weights", chain_file)
    assert "is the checkpoint itself; name another file" in line
    assert chain_file.read_bytes() == before


def test_one_name_for_two_files(tmp_path, capsys, chain_file):
    wanted = tmp_path / "x"
    line = refusal(capsys, chain_file, "--onnx", wanted, "--weights", wanted)
    assert "--onnx and --weights both name" in line


def test_a_run_that_diverged(tmp_path, chain_file):
    loaded = load_checkpoint(chain_file)
    loaded.state["theta"][3] = np.nan
    about = about_of(chain_file)
    written(chain_file, loaded.state, about)
    with pytest.raises(ExportError, match=r"1 of \d+ parameters are not finite: the run diverged"):
        read_policy(chain_file)


def test_a_state_of_another_network(chain_file):
    loaded = load_checkpoint(chain_file)
    about = about_of(chain_file)
    loaded.state["theta"] = loaded.state["theta"][:-8]
    written(chain_file, loaded.state, about)
    with pytest.raises(ExportError, match="the network of its config has"):
        read_policy(chain_file)
    del loaded.state["theta"]
    written(chain_file, loaded.state, about)
    with pytest.raises(ExportError, match="it has no theta"):
        read_policy(chain_file)
