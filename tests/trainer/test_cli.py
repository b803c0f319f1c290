"""The command line: what a user gets, and what a user gets wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainer.setups import SMALL, full, make, short

from onegraph.kernels.device import HostDevice
from onegraph.stages import (
    Buffer,
    GraphLaunch,
    Launch,
    LaunchGroup,
    Phase,
    Ref,
    StepProgram,
    exact_sets,
    format_set,
)
from onegraph.stages.registry import ALL
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.cli import main
from onegraph.trainer.cli.stages import audit_rows, programs_at
from onegraph.trainer.config import config_reference, config_to_toml, load_config

COMMAND = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from onegraph.trainer.cli import main; sys.exit(main())",
]

FAST = SMALL | {"loop.epoch_steps": 20, "loop.total_env_steps": 160 + 4 * 39}


def sets(**values):
    """``--set`` arguments of the small chain, and others."""
    fields = FAST | {name.replace("__", "."): value for name, value in values.items()}
    return [x for name, value in fields.items() for x in ("--set", f"{name}={value}")]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEGRAPH_STAGES", raising=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a small run of the chain."""
    folder = tmp_path_factory.mktemp("run") / "chain"
    code = main(
        ["train", "--config", "chain", *sets(), "--device", "host", "--run-dir", str(folder)]
    )
    assert code == 0
    return folder


def train(*arguments):
    return main(["train", "--device", "host", *map(str, arguments)])


def refusal(capsys, code, exit_code=1):
    """The one line of a refused command."""
    out, err = capsys.readouterr()
    assert code == exit_code
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("onegraph: ")
    return line.removeprefix("onegraph: ").removeprefix("error: ")


# ------------------------------------------------------------------------ training


def test_a_run_ends_with_its_tables_and_its_files(capsys, tmp_path):
    assert train("--config", "chain", *sets(), "--run-dir", "x/y") == 0
    out, err = capsys.readouterr()
    assert "device host (NumPy), stages 1 gpu-replay, 2 philox-per" in err
    assert "(by the config's stages), run folder x/y" in err
    assert "epoch 1 · " in err
    assert "epoch 2 · " in err
    for part in ("Learning step by phase", "per_sample", "Action values", "largest error", "phase"):
        assert part in out
    folder = tmp_path / "x" / "y"
    assert sorted(p.name for p in folder.iterdir()) == [
        "checkpoints",
        "config.toml",
        "metrics.jsonl",
    ]
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == [
        "best.safetensors",
        "last-1.safetensors",
        "last.safetensors",
    ]


@pytest.mark.parametrize("head", ["iqn", "c51"])
def test_a_chain_by_another_head_ends_with_its_error(capsys, head):
    overrides = sets(
        network__head=head, network__iqn__quantiles=4, network__iqn__target_quantiles=4
    )
    assert train("--config", "chain", *overrides, "--run-dir", "x") == 0
    out = capsys.readouterr().out
    assert "Action values" in out
    assert re.search(r"largest error: [\d.]+", out)


@pytest.mark.parametrize(
    ("head", "table"),
    [("iqn", "Quantiles of the return"), ("c51", "Probabilities of the return"), ("dqn", None)],
)
def test_a_coin_ends_with_its_returns(capsys, head, table):
    assert train("--config", "coin", *sets(network__head=head), "--run-dir", "x") == 0
    out = capsys.readouterr().out
    assert re.search(r"mean return: -?\d\.\d{3} \(exact: 0\.5\)", out)
    assert [t for t in ("Quantiles of", "Probabilities of") if t in out] == (
        [" ".join(table.split()[:2])] if table else []
    )
    if head == "c51":
        assert len(re.findall(r" 0\.5 │", out)) == 2  # the exact masses at 0 and 1


@pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")
def test_flag_environment_and_config_choose_the_stages_in_this_order(capsys, monkeypatch):
    config = ["--config", "chain", *sets(stages="0-4")]
    monkeypatch.setenv("ONEGRAPH_STAGES", "2")
    assert train(*config, "--stages", "none", "--run-dir", "a") == 0
    assert train(*config, "--run-dir", "b") == 0
    monkeypatch.delenv("ONEGRAPH_STAGES")
    assert train(*config, "--run-dir", "c") == 0
    err = capsys.readouterr().err
    said = re.findall(r"stages ([^()]*) \(by ([^)]*)\)", err)
    assert said == [
        ("0 legacy", "--stages"),
        ("1 gpu-replay, 2 philox-per", "ONEGRAPH_STAGES"),
        ("1 gpu-replay, 2 philox-per, 3 phase-events, 4 gpu-counters", "the config's stages"),
    ]
    a, b, c = (load_checkpoint(Path(x)).state["theta"] for x in ("a", "b", "c"))
    assert (a == b).all()
    assert (a == c).all()


def test_a_second_run_does_not_write_over_the_first(capsys, trained):
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    line = refusal(capsys, train("--config", "chain", *sets(), "--run-dir", trained))
    assert line == (
        f"{trained} holds a run already; go on with it (--resume {trained}), or name another folder"
        " (--run-dir)"
    )
    assert {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()} == before


def test_nor_over_what_a_killed_run_left(capsys, trained, tmp_path):
    checkpoints = tmp_path / "x" / "checkpoints"
    checkpoints.mkdir(parents=True)
    best = checkpoints / "best.safetensors"
    best.write_bytes(b"")
    line = refusal(capsys, train("--config", "chain", *sets(), "--run-dir", "x"))
    assert "go on with it (--resume x/checkpoints/best.safetensors)" in line
    best.unlink()
    (tmp_path / "x" / "metrics.jsonl").write_text("{}\n")
    line = refusal(capsys, train("--config", "chain", *sets(), "--run-dir", "x"))
    assert line.startswith("x holds the metrics of another run")


def test_the_demo_leaves_another_run_alone(capsys, trained):
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    line = refusal(capsys, main(["demo", "--run-dir", str(trained)]))
    assert "holds a run already" in line
    assert {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()} == before


# ------------------------------------------------------------------------ going on


def test_a_run_goes_on_with_its_own_config(capsys, trained, tmp_path):
    code = train("--resume", trained, "--set", "loop.total_env_steps=396", "--run-dir", "on")
    assert code == 0
    on = load_checkpoint(tmp_path / "on")
    assert on.progress.learns == load_checkpoint(trained).progress.learns + 20
    assert on.config.replay.capacity == 300
    assert f"from {trained}/checkpoints/last.safetensors, " in capsys.readouterr().err


def test_going_on_in_another_runs_folder_is_refused(capsys, trained, tmp_path):
    assert train("--config", "chain", *sets(), "--run-dir", "mine") == 0
    capsys.readouterr()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    line = refusal(capsys, train("--resume", trained, "--run-dir", "mine"))
    assert line.startswith("mine holds a run already; go on with it (--resume mine), or name")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    # Its own folder by another name is its own.
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert train("--resume", "mine", "--run-dir", "link") == 0


def test_a_checkpoint_out_of_its_folder_goes_on_in_the_configs(trained, tmp_path):
    alone = tmp_path / "deep" / "alone.safetensors"
    alone.parent.mkdir()
    alone.write_bytes((trained / "checkpoints" / "last.safetensors").read_bytes())
    assert train("--resume", alone, "--set", "run_dir=mine") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "mine"]
    assert [p.name for p in alone.parent.iterdir()] == [alone.name]


def test_a_checkpoint_named_from_its_own_folder_goes_on_in_the_runs(trained, tmp_path, monkeypatch):
    folder = tmp_path / "copy" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "last.safetensors").write_bytes(
        (trained / "checkpoints" / "last.safetensors").read_bytes()
    )
    monkeypatch.chdir(folder)
    assert train("--resume", "last.safetensors", "--set", "loop.total_env_steps=396") == 0
    assert (tmp_path / "copy" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "chain"], "a resumed run has its own config; leave --config out"),
        (["--set", "network.hidden=[8]"], "the checkpoint's adam_m is [200] float32"),
        (["--set", "seed.x=1"], "override seed.x: seed is set to a value, so it has no x"),
        (["--set", "env.market.train_end=2010-01-01"], "env.market.validation_end = (not set)"),
        (["--set", "learn.gama=1"], "did you mean learn.gamma?"),
        (["--set", "learn.gamma=2"], "override learn.gamma = 2: use 1.0 or less"),
    ],
)
def test_a_resumed_run_refuses(capsys, trained, arguments, message):
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    assert message in refusal(capsys, train("--resume", trained, *arguments))
    assert {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()} == before


# ------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "none.toml"], "none.toml: no such file; the shipped configs are"),
        (["--set", "env.market.data=none.csv"], "none.csv"),
        (["--set", "env.market.data=bad.csv"], "bad.csv, line 3"),
        (["--set", "env.market.data=short.csv"], "short: 1 bars, the features look back 20"),
        (["--set", "env.market.symbol=XYZ"], "no symbol 'XYZ'"),
        (
            [
                "--set",
                "env.market.train_end=2020-01-01",
                "--set",
                "env.market.validation_end=2021-01-01",
            ],
            "validation window",
        ),
        (["--set", "env.market.purge_bars=100000"], "leave none"),
        (
            ["--set", "loop.start_steps=32"],
            "loop.start_steps = 32: is less than learn.batch_size = 64; raise it",
        ),
        (
            ["--set", "learn.batch_size=40000", "--set", "loop.start_steps=40000"],
            "learn.batch_size = 40000: is more than replay.capacity = 20000",
        ),
        (["--set", "replay.capacity=0"], "override replay.capacity = 0: use 1 or more"),
        (["--stages", "9"], "--stages: stage '9' is unknown"),
        (["--stages", "philox"], "did you mean philox-per?"),
        (["--stages", "5,6"], "child-graphs needs gpu-counters"),
        (["--set", "stages=all,-gpu-replay"], "the config's stages: "),
        (["--set", "learn.gamma"], "override 'learn.gamma': write field=value"),
        (["--resume", "none"], "none: there is no such checkpoint"),
        (["--resume", "bad.csv"], "bad.csv: this is no whole checkpoint"),
        (["--run-dir", "bad.csv"], "bad.csv"),
        (
            ["--set", "network.attention_groups=3"],
            "network.attention_groups: 3 groups do not divide the 16 features of a state, padding"
            " included; use 1, 2, 4, 8 or 16, or 0 for no attention",
        ),
        (
            ["--set", "network.attention_groups=8", "--set", "network.attention_heads=3"],
            "network.attention_heads: 3 heads do not divide the 2 features of a group (16 features,"
            " network.attention_groups = 8); use 1 or 2",
        ),
        (
            ["--set", "preset=full", "--set", "learn.max_grad_norm=0"],
            "learn.max_grad_norm = 0.0: is no norm to have shares of, which budget.on = true asks",
        ),
        (
            ["--set", "preset=full", "--set", "aux.iql=false"],
            "aux.modulate = true: needs the value networks; set aux.iql = true, or leave it out",
        ),
        (["--set", "preset=whole"], "override preset = \"whole\": use 'dqn' or 'full'"),
    ],
)
def test_bad_input_to_train_is_one_line(capsys, tmp_path, arguments, message):
    header = "Date,Open,High,Low,Close,Volume\n"
    (tmp_path / "bad.csv").write_text(
        header + "2020-01-01,1,2,1,2,5\n2020-01-02,1,2,one,2,5\n2020-01-03,1,2,1,2,5\n"
    )
    (tmp_path / "short.csv").write_text(header + "2020-01-01,1,2,1,2,5\n")
    config = [] if "--config" in arguments or "--resume" in arguments else ["--config", "demo"]
    code = train(*config, *arguments)
    if arguments[0] == "--run-dir":  # found when the run begins to write, after it said where
        out, err = capsys.readouterr()
        assert (code, out) == (1, "")
        assert "onegraph: error: " in err.splitlines()[-1]
        assert "Traceback" not in err
        return
    assert message in refusal(capsys, code)
    assert not (tmp_path / "runs").exists()


def test_an_unknown_stage_in_the_environment_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("ONEGRAPH_STAGES", "everything")
    line = refusal(capsys, train("--config", "demo"))
    assert line.startswith("ONEGRAPH_STAGES: stage 'everything' is unknown")


def test_a_device_that_is_not_one_is_refused(capsys):
    line = refusal(capsys, main(["train", "--config", "demo", "--device", "tpu"]))
    assert line == "override device = \"tpu\": use 'auto', 'cuda' or 'host'"


def test_cuda_without_a_gpu_is_one_line(tmp_path):
    done = subprocess.run(
        [*COMMAND, "train", "--config", "demo", "--device", "cuda"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("onegraph: error: ")
    assert "cuda" in line.lower()
    assert "host" in line, "it says what to do"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "none"], "none: there is no such checkpoint"),
        (["stages", "show", "9"], "stage '9' is unknown"),
        (["stages", "diff", "3", "x"], "stage 'x' is unknown"),
        (["stages", "show", "4", "--config", "none.toml"], "none.toml: no such file"),
        (["stages", "audit", "5,6"], "child-graphs needs gpu-counters"),
        (["config", "--set", "seed=-1"], "override seed = -1: use 0 or more"),
        (
            ["stages", "show", "4", "--set", "network.attention_groups=5"],
            "network.attention_groups: 5 groups do not divide the 16 features of a state",
        ),
    ],
)
def test_bad_input_to_other_commands_is_one_line(capsys, arguments, message):
    assert message in refusal(capsys, main(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--stage", "4"],
        ["trian"],
        ["stages", "show", "4", "--program", "dream"],
        ["evaluate"],
    ],
)
def test_a_command_that_cannot_be_read_exits_with_2(capsys, arguments):
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_lack_of_memory_is_one_line(capsys, monkeypatch):
    def none(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("onegraph.trainer.cli.train.Trainer", none)
    line = refusal(capsys, train("--config", "demo"))
    assert line.startswith("out of host memory")
    assert "replay.memory_cap_mb" in line


# ------------------------------------------------------------------------ Ctrl-C


def interrupted(folder, number):
    """Start a run that would never end, and send it a signal in its second epoch."""
    fields = sets(loop__epoch_steps=150, loop__total_env_steps=10**9)
    command = [*COMMAND, "train", "--config", "chain", "--device", "host", *fields]
    running = subprocess.Popen([*command, "--run-dir", folder], stderr=subprocess.PIPE, text=True)
    metrics = Path(folder) / "metrics.jsonl"
    until = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text()):
        assert running.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    return running.returncode, err


@pytest.mark.slow
def test_after_ctrl_c_the_state_is_kept_and_goes_on_to_the_same_end(tmp_path):
    code, err = interrupted("halves", signal.SIGINT)
    assert code == 130
    last = tmp_path / "halves" / "checkpoints" / "last.safetensors"
    assert err.splitlines()[-1] == (
        "onegraph: interrupted; the state is in halves/checkpoints/last.safetensors"
    )
    assert "Traceback" not in err
    stopped = load_checkpoint(last).progress
    assert (stopped.epoch, stopped.learns) >= (1, 150)

    end = (stopped.learns // 150 + 1) * 150
    total = ["--set", f"loop.total_env_steps={160 + 4 * (end - 1)}", "--device", "host"]
    assert main(["train", "--resume", "halves", *total]) == 0
    fields = sets(loop__epoch_steps=150)
    assert main(["train", "--config", "chain", *fields, *total, "--run-dir", "straight"]) == 0
    straight = tmp_path / "straight" / "checkpoints" / "last.safetensors"
    assert load_checkpoint(straight).progress.learns == end
    assert last.read_bytes() == straight.read_bytes()
    epochs = (tmp_path / "halves" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["learn_steps"] for line in epochs] == list(range(150, end + 1, 150))


@pytest.mark.slow
def test_a_run_that_is_told_to_end_keeps_its_state_too(tmp_path):
    code, err = interrupted("x", signal.SIGTERM)
    assert code == 130
    assert "interrupted; the state is in" in err
    assert load_checkpoint(tmp_path / "x").progress.learns >= 150


# ------------------------------------------------------------------------ looking


def test_evaluate_prints_the_action_values(capsys, trained):
    assert main(["evaluate", str(trained)]) == 0
    out, err = capsys.readouterr()
    assert "40 learning steps" in err
    assert "largest error" in out
    first = out
    assert main(["evaluate", str(trained / "checkpoints" / "last.safetensors")]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.slow
def test_evaluate_prints_the_policy_beside_the_baselines(capsys):
    assert train("--config", "demo", *sets(), "--run-dir", "m") == 0
    trained = capsys.readouterr().out
    assert main(["evaluate", "m"]) == 0
    out = capsys.readouterr().out
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if "│" in line}
    assert set(rows) == {"policy", "flat", "buy and hold"}
    assert "+0.00%" in rows["flat"]
    assert "Greedy policy on the test window" in out
    assert all(row in trained for row in rows.values()), "as the run itself printed them"
    assert main(["evaluate", "m", "--window", "validation"]) == 0
    assert "Greedy policy on the validation window" in capsys.readouterr().out
    assert "choose train, validation or test" in refusal(
        capsys, main(["evaluate", "m", "--window", "future"])
    )


def test_config_prints_every_field_as_toml(capsys, tmp_path):
    assert main(["config", "--config", "demo", "--set", "seed=5"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "x.toml").write_text(text)
    assert load_config("x.toml") == load_config("demo", {"seed": 5})
    assert text.strip() == config_to_toml(load_config("demo", {"seed": 5})).strip()


def test_a_preset_is_given_on_the_command_line_or_in_the_file(capsys, tmp_path):
    assert main(["config", "--config", "demo", "--set", "preset=full"]) == 0
    (tmp_path / "x.toml").write_text(printed := capsys.readouterr().out)
    config = load_config("x.toml")
    assert config == load_config("demo", {"preset": "full"})
    assert (config.network.head, config.aux.denoise, config.learn.vaccine) == ("iqn", True, True)
    assert config.network.hidden == (64, 64), "the file goes over the preset"
    # What was printed names every field, so that a preset under it changes nothing.
    (tmp_path / "y.toml").write_text(printed.replace('preset = "full"', 'preset = "dqn"'))
    assert load_config("y.toml").network == config.network


def test_help_names_every_field(capsys):
    assert main(["train", "--help"]) == 0

    def flat(text):  # lines break at hyphens too
        return " ".join(text.split()).replace("- ", "-")

    text = flat(capsys.readouterr().out)
    for field in config_reference():
        assert flat(f"{field.name} ({field.type}") in text, field.name
        assert flat(field.description) in text, field.name
    for option in ("--config", "--set", "--stages", "--device", "--run-dir", "--resume"):
        assert option in text


@pytest.mark.parametrize("command", ["train", "evaluate", "demo", "config", "stages"])
def test_every_command_has_help(capsys, command):
    assert main([command, "--help"]) == 0
    assert "Usage: onegraph" in capsys.readouterr().out


def test_stages_list_has_all_seven(capsys):
    assert main(["stages", "list"]) == 0
    out = capsys.readouterr().out
    names = ("legacy", "gpu-replay", "philox-per", "phase-events", "gpu-counters")
    for name in (*names, "child-graphs", "parent-graph"):
        assert f" {name} " in out


def test_stages_show_prints_the_program(capsys):
    assert main(["stages", "show", "6", "--program", "learn"]) == 0
    out = capsys.readouterr().out
    assert "sample_batch" in out
    assert "dtoh" not in out
    assert main(["stages", "show", "0", "--program", "all", "--buffers"]) == 0
    out = capsys.readouterr().out
    assert "via to_host" in out or "to_host" in out
    assert "replay_state: f32[" in out
    assert "program collect" in out or "collect" in out


def test_stages_show_and_diff_the_full_learner(capsys):
    given = ["--set", "preset=full"]
    assert main(["stages", "show", "6", "--buffers", *given]) == 0
    out = capsys.readouterr().out
    for name in ("attention_core", "iqn_loss", "spectral_right", "iql_modulate", "grad_vaccine:"):
        assert name in out
    assert main(["stages", "diff", "1", "2", *given]) == 0
    plus = [x for x in capsys.readouterr().out.splitlines() if x.startswith("+")]
    assert any("philox_thresholds" in line for line in plus)
    assert not any("iqn" in line or "attn" in line for line in plus), "no stage rewrites the heads"
    assert main(["stages", "audit", *given]) == 0
    out = capsys.readouterr().out
    assert "project_gradient" in out
    assert "shared" not in out


@pytest.mark.slow
def test_the_full_learner_from_the_command_line_to_the_report(capsys, tmp_path):
    """Train, evaluate, go on, and make the page."""
    small = {"preset": "full", "network__hidden": [8], "network__attention_groups": 2}
    small |= {"network__iqn__quantiles": 4, "network__iqn__target_quantiles": 3}
    given = ["--config", "chain", *sets(**small), "--run-dir", "run"]
    assert train(*given) == 0
    table = capsys.readouterr().out
    assert main(["evaluate", "run", "--device", "host"]) == 0
    error = next(x for x in table.splitlines() if x.startswith("largest error"))
    assert error in capsys.readouterr().out.splitlines(), "of the same state, the same values"
    assert train("--resume", "run", "--set", "loop.total_env_steps=400") == 0
    saved = load_checkpoint(Path("run"))
    assert saved.config.preset == "full"
    assert {"iqn_ready", "spectral_vectors"} <= set(saved.state)
    assert main(["report", "run", "--no-stages-bench"]) == 0
    assert "</html>" in (tmp_path / "run" / "report.html").read_text()


def test_stages_diff_prints_what_a_stage_changes(capsys):
    assert main(["stages", "diff", "1", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- learn at 1", "+++ learn at 2"]
    assert any(line.startswith("-") and "h_total" in line for line in lines)
    assert any(line.startswith("+") and "philox_thresholds" in line for line in lines)
    assert main(["stages", "diff", "4", "4"]) == 0
    assert capsys.readouterr().out.strip() == ""


def test_stages_audit_says_where_a_shared_module_is(capsys):
    assert main(["stages", "audit", "2"]) == 0
    assert "gpu-counters splits it" in capsys.readouterr().out
    assert main(["stages", "audit"]) == 0
    out = capsys.readouterr().out
    assert "shared" not in out
    assert "graphed" in out


@pytest.mark.parametrize("stages", [s for s in exact_sets() if 4 in s], ids=format_set)
@pytest.mark.parametrize("config", ["demo", "chain", "full"])
def test_no_module_is_launched_from_graphs_and_outside(stages, config):
    settings = load_config("demo", {"preset": "full"}) if config == "full" else load_config(config)
    rows = audit_rows(programs_at(settings, stages))
    for kernel, module, places in rows:
        outside = "(no graph)" in places
        assert module == ("ungraphed" if outside else "graphed"), (kernel, places)
        assert "(graph " not in places or not outside, (kernel, places)
    if 5 in stages:
        collected = {kernel for kernel, _, places in rows if "learn." in places}
        assert {"dqn_loss", "adam_step", "sample_batch"} <= collected


@pytest.mark.parametrize("config", [short(), full()], ids=["dqn", "full"])
def test_the_audit_lists_what_a_run_launches(config):
    trainer = make(HostDevice(), config, "all")
    for _ in range(16):
        trainer.collect()
    for _ in range(2):
        trainer.learn()
    launched = {(name.partition("[")[0], module) for name, module in trainer.device.launch_sites}
    listed = {(k, m) for k, m, _ in audit_rows(programs_at(config, ALL))}
    assert launched <= listed


def test_the_audit_names_the_kernel_that_does_a_group():
    parts = [Ref("x", i, 1) for i in range(2)]
    members = tuple(
        Launch("relu_epilogue", {"extra": x, "out": x, "n": 1, "grad": 0}) for x in parts
    )
    graph = GraphLaunch("g", (LaunchGroup(members, module="graphed"),))
    program = StepProgram("p", "learn", (Phase("a", (graph,)),), (Buffer("x", (2,), "f32"),))
    assert audit_rows({"p": program}) == [("relu_epilogue_group_2", "graphed", "p.a (graph g)")]


# ---------------------------------------------------------------- fused kernels


def test_fusions_lists_the_ways_and_the_choice(capsys):
    assert main(["stages", "fusions", "--size", "M", "--device", "host"]) == 0
    out = capsys.readouterr().out
    ways = {"rows3-cluster8": "120,128", "rows3-cluster4": "213,648", "wide": "", "whole": ""}
    for name, shared in ways.items():
        (row,) = (line for line in out.splitlines() if f"│ {name} " in line)
        assert shared in row
    assert "rows8-cluster4" not in out  # too much for a block
    assert "stage 7 takes rows3-cluster8 (the first; the host device measures nothing)" in out


def test_fusions_says_why_there_are_none(capsys):
    assert main(["stages", "fusions", "--config", "chain", "--device", "host"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "stage 7 takes none (the fused kernels are for two hidden layers" in out
    assert "wide" in out


def test_fusions_of_a_config_with_overrides(capsys):
    argv = ["stages", "fusions", "--device", "host", "--set", "fusion=rows8-cluster4"]
    assert main(argv) == 0
    assert "stage 7 takes rows8-cluster4 (by the config)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--size", "XL"], 1, "size 'XL' is unknown"),
        (["--size", "S", "--config", "demo"], 2, "a size is a config of its own; give one"),
        (["--set", "fusion=fast"], 1, "'fast' is none of the ways to do this step; choose from"),
        (["--size", "S", "--device", "tpu"], 1, "'tpu': choose auto, cuda or host"),
    ],
)
def test_what_is_wrong_about_fusions(arguments, code, message, capsys):
    assert main(["stages", "fusions", "--device", "host", *arguments]) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.slow
def test_a_run_and_its_page_say_which_kernels_it_has(tmp_path, capsys):
    argv = ["train", "--config", "chain", "--device", "host", "--run-dir", str(tmp_path / "run")]
    argv += [f"--set={name}={value}" for name, value in FAST.items()]
    argv += ["--set=network.hidden=[8, 4]", "--set=fusion=rows5-cluster4"]
    assert main(argv) == 0
    assert "stage 7: rows5-cluster4 (by the config)" in capsys.readouterr().err
    page = ["report", str(tmp_path / "run"), "--no-stages-bench", "--device", "host"]
    assert main(page) == 0
    text = (tmp_path / "run" / "report.html").read_text()
    assert "draw_and_td" in text  # the merged phases
    assert "adam_grad" not in text
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "run"), "--stages", "6"]) == 0
    assert "stage 7:" not in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run")]) == 0
