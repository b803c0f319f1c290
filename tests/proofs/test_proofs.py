"""The harness of the learning proofs: verdicts, files and exit codes, with runs of a few steps."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onegraph.stages.registry import ALL
from onegraph.trainer import proofs as package
from onegraph.trainer.cli import main
from onegraph.trainer.config import ConfigError
from onegraph.trainer.proofs import (
    PROOFS,
    Needed,
    Outcome,
    Proof,
    Target,
    Task,
    UnknownProofError,
    chosen,
    parallel,
    run_task,
    run_tasks,
)
from onegraph.trainer.proofs.exact import ExactMdp, toy_text
from onegraph.trainer.proofs.plot import draw_curves
from onegraph.trainer.proofs.report import different_kernels

#: Three epochs of 16 learning steps.
TINY = {
    "env.lanes": 4,
    "replay.capacity": 100,
    "learn.batch_size": 16,
    "network.hidden": [8],
    "loop.start_steps": 64,
    "loop.epoch_steps": 16,
    "loop.timed_steps": 2,
    "loop.total_env_steps": 64 + 4 * 47,
}


def learned_steps(trainer):
    """A measurement whose right value is known: as many as the run has."""
    return {"learn steps": float(trainer.progress.learns), "seed": float(trainer.config.seed)}


def breaks(trainer):
    raise ZeroDivisionError("no figures\nand a second line")


def proof(name="easy", value=48.0, **changes):
    fields = {
        "title": "Learning steps are counted",
        "config": "chain",
        "measure": learned_steps,
        "targets": (Target("learn steps", value, "within", 0.5),),
        "source": "counting",
        "overrides": TINY,
        "seeds": (1, 2),
    }
    return Proof(name, **(fields | changes))


EASY, HARD = proof(), proof("hard", 1000.0)


def task(which=EASY, seed=1, folder=None, **more):
    return Task(which, seed, "host", folder, more=more)


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("target", "reached", "met"),
    [
        (Target("x", 475.0, "at least"), 475.0, True),
        (Target("x", 475.0, "at least"), 474.99, False),
        (Target("x", 110.0, "at most"), 110.0, True),
        (Target("x", 110.0, "at most"), 110.01, False),
        (Target("x", -12.25, "within", 0.25), -12.5, True),
        (Target("x", -12.25, "within", 0.25), -12.0, True),
        (Target("x", -12.25, "within", 0.25), -12.51, False),
        (Target("x", 1.0, "at least"), math.inf, False),
        (Target("x", 1.0, "at most"), -math.inf, False),
        (Target("x", 1.0, "within", math.inf), math.nan, False),
    ],
)
def test_a_target_is_met_or_not(target, reached, met):
    assert target.met(reached) is met


def test_a_target_in_words():
    assert Target("x", 475.0, "at least").text() == ">= 475"
    assert Target("x", 0.05, "at most").text() == "<= 0.05"
    assert Target("x", -12.2479, "within", 0.122).text() == "-12.2479 ± 0.122"


# ---------------------------------------------------------------- the catalogue


def test_every_proof_has_a_config_and_a_name_of_its_own():
    assert len({p.name for p in PROOFS}) == len(PROOFS)
    for p in PROOFS:
        config = p.settings(7, "host", {})
        assert (config.seed, config.device) == (7, "host")
        assert config.loop.early_stop_epochs == 0, "the final policy is what counts"
        assert p.targets
        assert p.source


def test_the_proofs_of_the_specification_are_there():
    """Names and targets, written out again."""
    targets = {p.name: [t.text() for t in p.targets] for p in PROOFS}
    assert targets == {
        "chain": ["<= 0.001"],
        "truncation-probe": ["100 ± 0.1"],
        "cliff": ["-12.2479 ± 0.122"],
        "cliffwalking": ["-12.2479 ± 0.122"],
        "frozenlake": ["0.542 ± 0.0054"],
        "acrobot": [">= -100"],
        "cartpole": [">= 475", "<= 110"],
        "bit-flip": [">= 0.95"],
        "bit-flip-without": ["<= 0.05"],
        "coin": ["<= 0.03", "0.5 ± 0.03", "0.5 ± 0.05"],
    }
    assert next(p.seeds for p in PROOFS if p.name == "cartpole") == (1, 2, 3)


def test_both_bit_flips_have_the_same_budget():
    with_it, without = (
        chosen([n])[0].settings(1, "host", {}) for n in ("bit-flip", PROOFS[-2].name)
    )
    assert (with_it.hindsight.strategy, without.hindsight.strategy) == ("future", "none")
    same = {"hindsight": with_it.hindsight}
    assert without.model_copy(update=same) == with_it


def test_proofs_are_chosen_by_name_in_the_order_of_the_table():
    assert chosen(()) == PROOFS
    assert [p.name for p in chosen(("coin", "chain", "coin"))] == ["chain", "coin"]
    with pytest.raises(UnknownProofError, match="'cartpol' is no proof; did you mean cartpole"):
        chosen(("chain", "cartpol"))
    with pytest.raises(UnknownProofError, match="'zzz' is no proof; there are chain, "):
        chosen(("zzz",))


# ---------------------------------------------------------------- exact values


@pytest.mark.parametrize(
    ("name", "states", "value"),
    [("CliffWalking-v1", 48, -12.2479), ("FrozenLake-v1", 16, 0.5420)],
)
def test_value_iteration_over_gymnasiums_table_gives_the_targets(name, states, value):
    exact = toy_text(name, {})
    assert exact.states == states
    assert exact.start.sum() == 1
    assert exact.start @ exact.optimal_values(0.99) == pytest.approx(value, abs=5e-5)


def test_value_iteration_of_two_states_by_hand():
    """State 0: stay for 1, or go to 1 with chance .5 for 0; state 1: 10 and the end."""
    onward = np.zeros((2, 2, 2))
    onward[0, 0, 0], onward[0, 1] = 1.0, [0.5, 0.5]
    exact = ExactMdp(np.array([[1.0, 0.0], [10.0, 10.0]]), onward, np.array([1.0, 0.0]))
    # Going: V = .5 (.5 V + .5 10) = 2.5 / .75; staying: 1 / .5.
    assert exact.optimal_values(0.5).tolist() == pytest.approx([10 / 3, 10.0], abs=1e-11)


# ---------------------------------------------------------------- one run


def test_a_run_is_measured_at_each_epoch_and_judged_at_its_end(tmp_path):
    told = []
    outcome = run_task(task(folder=tmp_path / "run"), told.append)
    assert outcome.verdict == "passed"
    assert outcome.figures == {"learn steps": 48, "seed": 1}
    assert (outcome.env_steps, outcome.learn_steps) == (252, 48)
    assert outcome.fusion == "none"
    assert outcome.fusion_source is not None
    assert outcome.fusion_source.endswith("not for 1 hidden layer")
    assert outcome.curve == ((124, 16.0), (188, 32.0), (252, 48.0))
    assert told == [124, 188, 252]
    assert sorted(x.name for x in (tmp_path / "run").iterdir()) == [
        "checkpoints",
        "config.toml",
        "log.txt",
        "metrics.jsonl",
    ]
    assert "epoch 3 · 252 env steps" in (tmp_path / "run" / "log.txt").read_text()


def test_a_target_that_is_missed_is_a_failed_proof(tmp_path):
    assert run_task(task(HARD, folder=tmp_path)).verdict == "failed"
    both = proof(targets=(*EASY.targets, Target("seed", 0.0, "at most")))
    assert run_task(task(both, folder=tmp_path)).verdict == "failed", "each target has to be met"


def test_a_run_names_the_kernels_that_stage_7_took(tmp_path):
    two_layers = {"network.hidden": [8, 8]}
    outcome = run_task(task(folder=tmp_path, **two_layers))
    assert (outcome.fusion, outcome.fusion_source) == (
        "rows3-cluster8",
        "the first; the host device measures nothing",
    )
    named = run_task(task(folder=tmp_path, fusion="wide", **two_layers))
    assert (named.fusion, named.fusion_source) == ("wide", "by the config")
    six = replace(task(folder=tmp_path, **two_layers), stages=ALL - {7, 8})
    assert (run_task(six).fusion, run_task(six).fusion_source) == (None, None)


def test_a_figure_for_the_curve_may_be_another_than_the_judged_one(tmp_path):
    scored = proof(point=lambda trainer, summary: summary.score)
    curve = run_task(task(scored, folder=tmp_path)).curve
    assert all(value < 0 for _, value in curve[:-1])  # the chain's score is minus its error
    assert curve[-1] == (252, 48.0)


def test_a_run_that_breaks_off_says_why_and_where_it_is_written(tmp_path):
    outcome = run_task(task(proof(measure=breaks), folder=tmp_path))
    assert outcome.verdict == "broke off"
    assert outcome.trouble == f"ZeroDivisionError: no figures ({tmp_path / 'log.txt'})"
    assert "and a second line" in (tmp_path / "log.txt").read_text()


def test_a_run_again_is_the_same_and_replaces_the_last(tmp_path):
    values = proof(measure=lambda t: {"learn steps": float(t.parameters().sum())})
    first, second = (run_task(task(values, folder=tmp_path)) for _ in range(2))
    assert (first.figures, first.curve) == (second.figures, second.curve)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    other = run_task(task(values, seed=2, folder=tmp_path))
    assert other.figures != first.figures


def test_what_is_not_installed_is_not_run(tmp_path, monkeypatch):
    needy = proof(needs=(Needed("no_such_package", "gym"),))
    outcome = run_task(task(needy, folder=tmp_path / "run"))
    assert outcome.verdict == "not run"
    assert outcome.trouble == "it needs no_such_package: pip install 'onegraph[gym]'"
    assert not (tmp_path / "run").exists()


def test_outcomes_come_in_the_order_of_the_tasks(tmp_path):
    said = []
    tasks = [task(proof(measure=breaks), 3, tmp_path / "a"), task(EASY, 2, tmp_path / "b")]
    outcomes = run_tasks(tasks, 1, said.append)
    assert [(o.seed, o.verdict) for o in outcomes] == [(3, "broke off"), (2, "passed")]
    assert said == outcomes


@pytest.mark.slow
def test_processes_beside_one_another_reach_the_same(tmp_path):
    coin = chosen(("coin",))[0]  # of the package, so that a process finds it
    tiny = TINY | {"network.iqn.quantiles": 3}

    def run(jobs):
        tasks = [
            Task(coin, seed, "host", tmp_path / str(jobs) / str(seed), more=tiny) for seed in (1, 2)
        ]
        return [(o.seed, o.figures, o.curve, o.verdict) for o in run_tasks(tasks, jobs)]

    alone = run(1)
    assert run(2) == alone
    assert alone[0][1] != alone[1][1]


@pytest.mark.slow
def test_a_process_that_dies_breaks_off_its_own_run_alone(tmp_path):
    dies = replace(chosen(("coin",))[0], measure=sys.exit)
    tiny = TINY | {"network.iqn.quantiles": 3}
    tasks = [
        task(dies, 1, tmp_path / "a", **tiny),
        task(chosen(("coin",))[0], 1, tmp_path / "b", **tiny),
    ]
    dead, other = run_tasks(tasks, 2)
    assert dead.verdict == "broke off"
    assert "its process died with exit code 1" in dead.trouble
    assert other.verdict == "failed"


# ---------------------------------------------------------------- kernels


def ended(seed, fusion, name="easy"):
    return Outcome(name, seed, "passed", fusion=fusion)


def test_seeds_by_different_kernels_are_told():
    outcomes = [
        ended(1, "wide"),
        ended(2, "rows5-cluster8"),
        ended(3, "rows5-cluster8"),
        ended(1, "ends", "hard"),
        ended(2, "ends", "hard"),
    ]
    assert different_kernels((EASY, HARD), outcomes) == [
        "easy: seeds ran by different kernels: wide (seed 1); rows5-cluster8 (seed 2, 3); to have"
        " the same for all, name one: --set fusion=NAME"
    ]


def test_runs_without_stage_7_or_an_end_are_no_other_kernels():
    assert different_kernels((EASY,), [ended(1, None), ended(2, "wide"), ended(3, "wide")]) == []
    assert different_kernels((EASY,), [ended(1, None), ended(2, None)]) == []
    assert different_kernels((EASY,), []) == []


# ---------------------------------------------------------------- pictures


def test_a_curve_is_drawn_for_each_seed(tmp_path):
    outcomes = [run_task(task(EASY, seed, tmp_path / str(seed))) for seed in (1, 2)]
    png, svg = draw_curves(EASY, outcomes, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    assert text.count("<svg") == 1
    again = tmp_path / "again"
    again.mkdir()
    assert [p.read_bytes() for p in draw_curves(EASY, outcomes, again)] == [
        png.read_bytes(),
        svg.read_bytes(),
    ]
    assert draw_curves(EASY, [], tmp_path) == ()


# ---------------------------------------------------------------- the command


@pytest.fixture
def prove(tmp_path, monkeypatch):
    """The command over `EASY` and `HARD`, in a folder of its own; gives its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEGRAPH_STAGES", raising=False)
    monkeypatch.setattr(package, "chosen", lambda names: chosen(names, (EASY, HARD)))

    def run(*arguments):
        return main(["prove", *arguments, "--device", "host", "--run-dir", "out"])

    return run


def test_the_command_prints_a_table_and_writes_results_and_curves(prove, tmp_path, capsys):
    assert prove("easy", "--seeds", "3,5") == 0
    out, err = capsys.readouterr()
    assert out.count("passed") == 2
    for cell in ("easy", "learn steps", "48 ± 0.5", "252"):
        assert cell in out
    assert "easy, seed 3: passed (learn steps 48, seed 3, " in err
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "easy",
        "easy.png",
        "easy.svg",
        "results.json",
    }
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    (listed,) = found["proofs"]
    assert found["stages"] == "0-8"
    assert found["machine"]["device"] == "host (NumPy)"
    assert listed["name"] == "easy"
    assert listed["targets"][0] == {
        "figure": "learn steps",
        "value": 48.0,
        "sense": "within",
        "tolerance": 0.5,
        "text": "48 ± 0.5",
    }
    assert [(r["seed"], r["verdict"], r["figures"]["learn steps"]) for r in listed["runs"]] == [
        (3, "passed", 48.0),
        (5, "passed", 48.0),
    ]
    assert [r["fusion"] for r in listed["runs"]] == ["none", "none"]
    assert "different kernels" not in err
    assert listed["runs"][0]["curve"] == [[124, 16.0], [188, 32.0], [252, 48.0]]


def test_the_command_names_what_failed_and_exits_with_1(prove, tmp_path, capsys):
    assert prove("--no-plots") == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "failed: hard (seed 1), hard (seed 2)"
    assert out.count("passed") == 2
    assert out.count("failed") == 2
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    verdicts = [[r["verdict"] for r in p["runs"]] for p in found["proofs"]]
    assert verdicts == [["passed"] * 2, ["failed"] * 2]
    assert not list((tmp_path / "out").glob("*.png"))


def test_the_command_says_which_seeds_ran_by_different_kernels(prove, monkeypatch, capsys):
    ways = {1: "wide", 2: "ends"}

    def run(task, tell):
        return Outcome(EASY.name, task.seed, "passed", fusion=ways[task.seed])

    monkeypatch.setattr(parallel, "run_task", run)
    assert prove("easy", "--no-plots") == 0
    words = " ".join(capsys.readouterr().err.split())
    assert "easy: seeds ran by different kernels: wide (seed 1); ends (seed 2); to have" in words


def test_a_shipped_proof_cut_short_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    less = [x for name, value in TINY.items() for x in ("--set", f"{name}={value}")]
    arguments = ["chain", "--seeds", "1", "--device", "host", "--no-plots", "--stages", "4"]
    assert main(["prove", *arguments, *less]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "failed: chain (seed 1)"
    found = json.loads((tmp_path / "runs" / "proofs" / "results.json").read_text())
    assert found["overrides"]["loop.epoch_steps"] == 16
    assert found["stages"] == "0-4"


def test_a_proof_that_breaks_off_is_named_and_the_others_are_run(prove, monkeypatch, capsys):
    broken = proof("broken", measure=breaks)
    monkeypatch.setattr(package, "chosen", lambda names: (broken, EASY))
    assert prove("--seeds", "1", "--no-plots") == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "broke off: broken (seed 1)"
    assert "ZeroDivisionError: no figures" in err
    assert out.count("passed") == 1


def test_a_proof_that_cant_be_run_is_listed_as_such(prove, monkeypatch, capsys):
    needy = proof("needy", needs=(Needed("no_such_package", "gym"),))
    monkeypatch.setattr(package, "chosen", lambda names: (needy, EASY))
    assert prove("--seeds", "1", "--no-plots") == 1
    out, err = capsys.readouterr()
    assert "needy, seed 1: not run (it needs no_such_package: pip install 'onegraph[gym]')" in err
    assert err.splitlines()[-1] == "not run: needy (seed 1)"
    assert "passed" in out, "the others are run all the same"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["eazy"], "'eazy' is no proof; did you mean easy?"),
        (["--seeds", "1,x"], "'x' is no seed"),
        (["--seeds", "1,1"], "names a seed twice"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_a_command_that_cant_be_read_exits_with_2(prove, capsys, arguments, says):
    assert prove(*arguments) == 2
    assert says in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not Path("out").exists()


def test_a_field_that_cant_be_used_is_said_before_anything_runs(prove, capsys):
    assert prove("--set", "learn.gama=1") == 1
    assert "did you mean learn.gamma" in capsys.readouterr().err
    assert not Path("out").exists()
    with pytest.raises(ConfigError):
        EASY.settings(1, "host", {"learn.gama": 1})


def test_without_matplotlib_the_extra_is_named_before_anything_runs(prove, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert prove("easy") == 1
    assert "pip install 'onegraph[plot]'" in capsys.readouterr().err
    assert not Path("out").exists()


def test_the_proofs_can_be_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["prove", "--list"]) == 0
    out = capsys.readouterr().out
    for p in PROOFS:
        assert p.name in out
    assert list(tmp_path.iterdir()) == []
