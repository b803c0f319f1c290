"""``onegraph train --env``: what a user gets, and what is kept of it."""

import json
from pathlib import Path

import pytest
from page_reader import Page
from trainer.setups import gym

from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.cli import main
from onegraph.trainer.config import config_to_toml, load_config, shipped_configs


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEGRAPH_STAGES", raising=False)


def onegraph(*arguments):
    return main([str(a) for a in arguments])


@pytest.fixture
def small(tmp_path):
    """A config file of a small run."""
    path = tmp_path / "small.toml"
    path.write_text(config_to_toml(gym(run_dir="run")))
    return path


def train(*arguments):
    return onegraph("train", "--device", "host", *arguments)


def lines(folder="run"):
    text = Path(folder, "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_a_run_shows_its_returns_and_goes_on(small, capsys):
    assert train("--config", small) == 0
    out, err = capsys.readouterr()
    assert "return" in err
    assert "episodes · score" in err
    assert "5 greedy episodes of CartPole-v1" in out
    for word in ("return std", "return min", "return max", "length", "mean q"):
        assert word in out
    epochs = lines()
    assert len(epochs) == 3
    for epoch in epochs:
        extra = epoch["extra"]
        assert epoch["score"] == extra["validation_return"]
        assert extra["episodes"] >= 1
        # One reward a step.
        assert extra["episode_return"] == extra["episode_length"] >= 8
        assert extra["validation_return_min"] <= extra["validation_return"]
        assert extra["validation_return"] <= extra["validation_return_max"]
    assert onegraph("evaluate", "run", "--device", "host") == 0
    again = capsys.readouterr().out
    printed = out[out.index("5 greedy") : out.index("checkpoints:")]
    assert again.strip() == printed.strip()
    assert train("--resume", "run", "--set", "loop.total_env_steps=316") == 0
    assert len(lines()) == 4
    assert load_checkpoint(Path("run")).progress.learns == 64
    capsys.readouterr()
    assert onegraph("report", "run", "--device", "host") == 0
    page = Page(Path("run"))
    assert "CartPole-v1" in page.text[""]
    for name in ("figure-returns", "figure-lengths", "figure-score"):
        assert name in page.figures
    assert "collected" in page.figures["figure-returns"]


def test_an_environment_by_its_id_starts_from_the_shipped_config(small, capsys):
    assert onegraph("config", "--config", "gymnasium") == 0
    shown = capsys.readouterr().out
    assert 'id = "CartPole-v1"' in shown
    code = train("--env", "Acrobot-v9", "--run-dir", "x")
    assert code == 1
    assert "did you mean Acrobot-v1" in " ".join(capsys.readouterr().err.split())


def test_an_environment_by_its_id_goes_over_a_config(small, capsys):
    code = train("--config", small, "--env", "FrozenLake-v1", "--set", "loop.epoch_steps=48")
    assert code == 0
    assert "greedy episodes of FrozenLake-v1" in " ".join(capsys.readouterr().out.split())
    assert load_config("run/config.toml").env.id == "FrozenLake-v1"


def test_a_resumed_run_has_its_environment(capsys):
    assert train("--env", "CartPole-v1", "--resume", "run") == 1
    assert "leave --env out" in capsys.readouterr().err


def test_the_lanes_that_a_policy_is_refused_for_are_said_in_one_line(capsys):
    assert train("--env", "Pendulum-v1") == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith("onegraph: error: Pendulum-v1: its actions are Box")


@pytest.mark.parametrize("name", ["acrobot", "cartpole", "cliffwalking", "frozenlake", "gymnasium"])
def test_shipped_configs_are_of_gymnasium(name):
    assert name in shipped_configs()
    assert load_config(name).env.kind == "gymnasium"


def test_the_cartpole_of_the_proof_is_cleanrls():
    """Field by field, as the learner's specification lists them."""
    config = load_config("cartpole")
    assert (config.env.id, config.env.lanes) == ("CartPole-v1", 1)
    assert (config.replay.alpha, config.replay.n_step, config.replay.capacity) == (0.0, 1, 10_000)
    network, learn, loop = config.network, config.learn, config.loop
    assert network.hidden == (120, 84)
    assert (network.double, network.dueling, network.head) == (False, False, "dqn")
    assert (learn.loss, learn.batch_size, learn.gamma) == ("mse", 128, 0.99)
    assert (learn.max_grad_norm, learn.weight_decay) == (0.0, 0.0)
    assert (learn.lr.kind, learn.lr.start) == ("constant", 2.5e-4)
    assert (learn.target, learn.target_every) == ("hard", 50)
    assert (learn.epsilon.kind, learn.epsilon.start, learn.epsilon.end) == ("linear", 1.0, 0.05)
    assert learn.epsilon.steps * 2 == loop.total_env_steps == 500_000
    assert (loop.start_steps, loop.learn_every, loop.learns_per_collect) == (10_000, 10, 1)
