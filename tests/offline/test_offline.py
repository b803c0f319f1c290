"""Learning from recorded transitions, on the host device; and what a user does with it."""

import json

import numpy as np
import pytest
from offline.contract import OfflineContract, from_rows, learned, recorded, walk
from offline.made import chain_columns, tiny_columns

from onegraph.kernels.device import HostDevice
from onegraph.stages.flags import parse_stages
from onegraph.stages.verify import verify
from onegraph.trainer.cli import main
from onegraph.trainer.cli.stages import programs_at
from onegraph.trainer.config import ConfigError, load_config, override_config
from onegraph.trainer.loop import Loop
from onegraph.trainer.offline import TransitionsError, held_out_figures, offline_run
from onegraph.trainer.offline import transitions_from as rows_from
from onegraph.trainer.subject import TrainerSubject

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

FAST = [
    *("--set", "network.hidden=[8]", "--set", "loop.epoch_steps=10", "--set", "loop.timed_steps=2"),
    *("--set", "offline.learn_steps=25", "--set", "learn.batch_size=16", "--device", "host"),
]


@pytest.fixture
def open_device():
    return HostDevice


class TestOffline(OfflineContract):
    pass


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEGRAPH_STAGES", raising=False)
    np.savez(tmp_path / "walks.npz", **chain_columns())
    return "walks.npz"


# ---------------------------------------------------------------- sizes


def test_the_config_has_the_sizes_of_the_rows():
    config, data = offline_run(recorded(env__lanes=64), rows_from(walk(), "rows"))
    assert (config.env.lanes, config.replay.capacity, config.loop.start_steps) == (1, 70, 4)
    assert data.actions == 2
    assert data.held_out is None
    assert override_config(config, {}, "again") == config
    assert offline_run(load_config("chain")) == (load_config("chain"), None)


@pytest.mark.parametrize(
    ("changes", "columns", "says"),
    [
        ({"learn__batch_size": 71}, walk(), "70 of its 70 rows can be drawn, fewer than learn.bat"),
        ({"learn__batch_size": 70}, walk(broken=1), "69 of its 70 rows can be drawn"),
        ({"learn__batch_size": 64, "offline__held_out": 0.5}, walk(), "held out (offline.held_out"),
        ({"replay__n_step": 71}, walk(), "its 70 rows are fewer than replay.n_step = 71"),
        ({"offline__actions": 1}, walk(), "row 1: action = 1, and offline.actions = 1 has actions"),
        ({}, walk() | {"action": np.full(70, 65_536)}, "would make 65,537 actions"),
        ({"offline__held_out": 0.5}, tiny_columns(9), "of 1 episode(s) leaves none to hold out"),
    ],
)
def test_rows_that_do_not_fit_the_config_are_refused(changes, columns, says):
    with pytest.raises(TransitionsError) as caught:
        offline_run(recorded(**changes), rows_from(columns, "rows"))
    assert says in str(caught.value)


def test_more_actions_than_were_taken_may_be_named():
    _, data = offline_run(recorded(offline__actions=5), rows_from(walk(), "rows"))
    assert data.actions == 5


def test_without_a_file_there_is_nothing_recorded():
    with pytest.raises(ConfigError, match=r"env\.kind = \"recorded\": needs a file"):
        load_config(None, {"env.kind": "recorded"})


def test_hindsight_needs_to_know_the_goal():
    with pytest.raises(ValueError, match="'recorded' hold none"):
        from_rows(HostDevice, walk(), recorded(hindsight__strategy="future"))


# ---------------------------------------------------------------- held out


def test_whole_episodes_are_held_out_spread_evenly():
    columns = tiny_columns(12, episode=np.repeat(np.arange(6), 2))
    _, data = offline_run(recorded(offline__held_out=1 / 3), rows_from(columns, "rows"))
    assert data.held_out.state[:, 0].tolist() == [4, 5, 10, 11]
    assert data.training.state[:, 0].tolist() == [0, 1, 2, 3, 6, 7, 8, 9]
    assert data.training.ended().tolist() == [False, True] * 4


def test_the_error_on_what_is_held_out_is_that_of_one_step():
    columns = tiny_columns(8, episode=np.repeat(np.arange(4), 2), terminated=np.arange(8) % 2 == 1)
    columns["reward"][6] = np.nan  # not looked at
    config = recorded(offline__held_out=0.5, learn__gamma=0.5)
    trainer = learned(from_rows(HostDevice, columns, config), 3)
    held = trainer.offline.held_out
    q, q_next = trainer.q_values(held.state), trainer.q_values(held.next_state)
    # Rows 2, 3, 6 and 7 of the file, of which 3 and 7 are terminal and 6 is broken.
    td = [1 + 0.5 * q_next[0].max() - q[0, 0], 1 - q[1, 1], 1 - q[3, 1]]
    found = held_out_figures(trainer, held)
    assert found["held_out_td"] == pytest.approx(np.abs(td).mean(), rel=1e-12)
    assert found["held_out_q"] == pytest.approx((q[0, 0] + q[1, 1] + q[3, 1]) / 3, rel=1e-12)


def test_a_run_without_an_environment_reports_the_held_out_error_and_has_no_score(tmp_path):
    config = recorded(offline__held_out=0.3, offline__learn_steps=40)
    trainer = from_rows(HostDevice, walk(140, broken=2), config)
    epochs = Loop(trainer, tmp_path).run()
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [x["learn_steps"] for x in lines] == [16, 32, 40]
    for epoch, line in zip(epochs, lines, strict=True):
        assert epoch.score is None
        assert line["extra"]["held_out_td"] == epoch.extra["held_out_td"] > 0
        assert line["env_steps"] == 0
    assert epochs[0].epoch_invalid_rows == int((~trainer.offline.training.finite()).sum())
    assert epochs[-1].extra == held_out_figures(trainer, trainer.offline.held_out)


# ---------------------------------------------------------------- the command line


def test_the_command_learns_from_a_file_and_goes_on(file, tmp_path, capsys):
    assert main(["train", "--transitions", file, *FAST, "--run-dir", "run"]) == 0
    out, err = capsys.readouterr()
    assert "mean Q " in out
    assert "no environment was named" in out
    assert "epoch 3 · 25 steps · loss" in err
    config = load_config(tmp_path / "run" / "config.toml")
    assert config.env.kind == "recorded"
    assert config.offline.transitions == file
    more = ["--resume", "run", "--set", "offline.learn_steps=30"]
    assert main(["train", *more, "--device", "host"]) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(x)["learn_steps"] for x in lines] == [10, 20, 25, 30]
    assert main(["evaluate", "run", "--device", "host"]) == 0
    assert "mean Q " in capsys.readouterr().out
    assert main(["report", "run", "--no-stages-bench"]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "recorded has neither a test window nor exact action values" in page


def test_with_an_environment_the_policy_is_evaluated_in_it(file, capsys):
    arguments = ["--config", "chain", "--transitions", file, *FAST, "--run-dir", "run"]
    assert main(["train", *arguments]) == 0
    out = capsys.readouterr().out
    assert "Action values" in out
    assert "largest error: " in out


def test_an_environment_of_gymnasium_evaluates_and_is_never_stepped_to_learn(
    file, tmp_path, capsys
):
    at, wide = np.arange(40), np.linspace(-0.1, 0.1, 160, dtype=np.float32).reshape(40, 4)
    columns = tiny_columns(40, state=wide, next_state=wide, terminated=at % 10 == 9)
    np.savez(tmp_path / "poles.npz", **columns)
    some = ["--set", "env.validation_episodes=2", "--set", "env.evaluation_episodes=3"]
    some += ["--set", "replay.n_step=1", "--env", "CartPole-v1", "--transitions", "poles.npz"]
    assert main(["train", *some, *FAST, "--run-dir", "run"]) == 0
    out, err = capsys.readouterr()
    assert "return min" in out
    assert "epoch 1 · 10 steps · loss" in err
    assert " · score " in err


def test_a_moved_file_is_named_when_the_run_goes_on(file, tmp_path, capsys):
    assert main(["train", "--transitions", file, *FAST, "--run-dir", "run"]) == 0
    (tmp_path / file).rename(tmp_path / "moved.npz")
    capsys.readouterr()
    assert main(["train", "--resume", "run", "--device", "host"]) == 1
    assert capsys.readouterr().err == (
        "onegraph: error: walks.npz: there is no such file; check the path, which is relative to"
        " here\n"
    )
    more = ["--transitions", "moved.npz", "--set", "offline.learn_steps=27", "--device", "host"]
    assert main(["train", "--resume", "run", *more]) == 0


def test_a_broken_row_is_said_once(file, tmp_path, capsys):
    columns = chain_columns()
    columns["reward"][5] = np.nan
    np.savez(tmp_path / "broken.npz", **columns)
    assert main(["train", "--transitions", "broken.npz", *FAST, "--run-dir", "run"]) == 0
    rows, err = len(columns["reward"]), capsys.readouterr().err
    assert f"broken.npz: 1 of {rows} rows are not finite" in err.replace("\n", " ")
    assert "1 rows invalid" in err


def test_a_file_that_cant_be_used_is_one_line(file, tmp_path, capsys):
    np.savez(tmp_path / "bad.npz", **tiny_columns(action=np.array([0, 0, -7, 0])))
    assert main(["train", "--transitions", "bad.npz", *FAST, "--run-dir", "run"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("onegraph: error: bad.npz: row 2: action = -7 is negative; ")
    assert err.count("\n") == 1


def test_the_stages_can_be_looked_at_and_verified(file):
    overrides = {
        "env.kind": "recorded",
        "offline.transitions": file,
        "network.hidden": [8],
        "loop.epoch_steps": 20,
        "loop.timed_steps": 2,
    }
    config = load_config(None, overrides)
    assert set(programs_at(config, parse_stages("all"))) == {"learn"}
    sets = [parse_stages(text) for text in ("0", "4", "6")]
    assert verify(TrainerSubject(config), HostDevice, sets, steps=6).ok
