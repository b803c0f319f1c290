"""``onegraph walkforward``: what a user gets, and what a user gets wrong."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from page_reader import HOSTILE, Page, leads_to, loads_nothing
from walkforward.walks import kept, tiny, write_days

from onegraph.trainer.cli import main
from onegraph.trainer.config import config_to_toml, load_config
from onegraph.trainer.page.walkforward import drawn_seeds
from onegraph.trainer.walkforward.plan import RunId, load_plan
from onegraph.trainer.walkforward.result import read_result
from onegraph.trainer.walkforward.summary import summarise

COMMAND = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from onegraph.trainer.cli import main; sys.exit(main())",
]

SECTIONS = ("pooled", "spread", "windows", "runs", "config", "commands")


def onegraph(*words):
    return main([str(word) for word in words])


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEGRAPH_STAGES", raising=False)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The small walk-forward as a file."""
    folder = tmp_path_factory.mktemp("config")
    values = tiny(write_days(folder / "days.csv"), env__market__commission=0.0005)
    path = folder / "tiny.toml"
    path.write_text(config_to_toml(values.model_copy(update={"run_dir": HOSTILE})))
    return path


@pytest.fixture(scope="module")
def walked(config, tmp_path_factory):
    """A finished walk-forward, and what was printed."""
    root = tmp_path_factory.mktemp("walks") / "a <b>walk</b>"
    done = subprocess.run(
        [*COMMAND, "walkforward", "--config", str(config), "--run-dir", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return root, done.stdout, done.stderr


def refusal(capsys, code, exit_code=1):
    """The last line of a refused command."""
    assert code == exit_code
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("onegraph: ")
    return line.removeprefix("onegraph: ").removeprefix("error: ")


# ---------------------------------------------------------------- a finished one


@pytest.mark.slow
def test_windows_come_first_and_tables_last(walked):
    root, out, err = walked
    assert (
        out.index("Windows over") < out.index("Tests by window") < out.index("All tests, chained")
    )
    assert "2 windows x 2 seeds = 4 runs, stages all, 1 at a time" in err
    for run in ("window 0, seed 0", "window 1, seed 1"):
        assert f"{run}: epoch " in err
    for words in (
        "policy, mean of 2 seeds",
        "policy, std",
        "flat",
        "buy and hold",
        "window 1, 2020",
    ):
        assert words in out
    flat = " ".join(out.split())
    assert "each bar counted once" in flat
    assert "P = 365.2 bars a year" in flat
    assert {p.name for p in root.iterdir()} == {
        "config.toml",
        "report.html",
        "summary.json",
        "walkforward.json",
        "window-000",
        "window-001",
    }


@pytest.mark.slow
def test_the_page_has_the_figures_and_loads_nothing(walked):
    root, *_ = walked
    page = Page(root)
    loads_nothing(page)
    leads_to(page, SECTIONS)
    assert "a <b>walk</b>" in page.text[""]
    plan = load_plan(root)
    found = {run: read_result(root, run, plan.bars_digest) for run in plan.runs}
    summary = summarise(plan, found)
    for seed, metrics in summary.pooled.policies.items():
        row = page.row("pooled", f"policy, seed {seed}")
        assert row[1:4] == [
            f"{metrics.total_return:+.2%}",
            f"{metrics.sharpe:.2f}",
            f"{metrics.sortino:.2f}",
        ]
    hold = summary.pooled.baselines["buy and hold"]
    assert page.row("pooled", "buy and hold")[1] == f"{hold.total_return:+.2%}"
    assert {"figure-equity", "figure-sharpe", "figure-total-return"} <= set(page.figures)
    for name in ("seed 0", "seed 1", "flat", "buy and hold"):
        assert name in page.figures["figure-equity"]
    assert "window 1" in page.figures["figure-sharpe"]
    assert "all, chained" in page.figures["figure-sharpe"]
    digest = found[RunId(1, 1)].record.checkpoint.digest[:12]
    assert digest in page.row("runs", "window 1, seed 1")
    assert "--resume" in page.text["commands"]


@pytest.mark.slow
def test_a_finished_one_that_is_gone_on_with_only_shows_itself(walked, capsys):
    root, out, _ = walked
    stamps = {p: p.stat().st_mtime_ns for p in root.rglob("seed-*/*")}
    page = (root / "report.html").read_text()
    assert onegraph("walkforward", "--resume", root) == 0
    assert capsys.readouterr().out == out
    assert {p: p.stat().st_mtime_ns for p in root.rglob("seed-*/*")} == stamps
    assert (root / "report.html").read_text() == page


@pytest.mark.slow
def test_a_run_can_be_evaluated_by_itself(walked, capsys):
    root, *_ = walked
    run = RunId(1, 0)
    best = run.folder(root) / "checkpoints" / "best.safetensors"
    assert onegraph("evaluate", best) == 0
    plan = load_plan(root)
    test = read_result(root, run, plan.bars_digest).record.figures()["policy"]
    assert f"{test.total_return:+.2%}" in capsys.readouterr().out


@pytest.mark.slow
def test_seeds_can_be_added(walked, tmp_path, capsys):
    root = shutil.copytree(walked[0], tmp_path / "more")
    before = kept(root)
    words = ("--set", "walkforward.seeds=[0, 1, 4]")
    assert onegraph("walkforward", "--resume", root, *words, "--no-report") == 0
    after = kept(root)
    assert sorted(set(after) - set(before)) == ["window-000/seed-4", "window-001/seed-4"]
    assert {name: after[name] for name in before} == before
    assert "policy, mean of 3 seeds" in capsys.readouterr().out


def test_of_many_seeds_the_least_the_middle_and_the_most_are_drawn():
    def drawn(*returns):
        policies = {s: SimpleNamespace(total_return=r) for s, r in enumerate(returns)}
        plan, pooled = SimpleNamespace(seeds=tuple(policies)), SimpleNamespace(policies=policies)
        return drawn_seeds(SimpleNamespace(plan=plan, pooled=pooled))

    assert drawn(0.3, 0.1, 0.2) == [0, 1, 2]
    assert drawn(0.3, 0.1, 0.2, 0.9, 0.5, 0.4, 0.0, 0.6, 0.7) == [6, 5, 3]


# ---------------------------------------------------------------- stopped, failed


@pytest.mark.slow
def test_ctrl_c_saves_every_state_and_exits_with_130(config, tmp_path):
    root = tmp_path / "walk"
    sets = {"walkforward.workers": 2, "loop.total_env_steps": 400_000}
    words = [w for name, value in sets.items() for w in ("--set", f"{name}={value}")]
    process = subprocess.Popen(
        [*COMMAND, "walkforward", "--config", str(config), "--run-dir", str(root), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun = [RunId(0, seed).folder(root) / "metrics.jsonl" for seed in (0, 1)]
    deadline = time.monotonic() + 60
    while not all(path.exists() for path in begun) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted; 0 of 4 runs are finished and the others keep their state" in err
    assert f"--resume {root}" in err
    for path in begun:
        assert (path.parent / "checkpoints" / "last.safetensors").exists()
    assert not RunId(1, 0).folder(root).exists()


@pytest.mark.slow
def test_a_failed_run_leaves_no_table(walked, tmp_path, capsys):
    root = shutil.copytree(walked[0], tmp_path / "broken")
    folder = RunId(1, 0).folder(root)
    (folder / "result.json").unlink()
    (folder / "checkpoints" / "last.safetensors").write_bytes(b"")
    code = onegraph("walkforward", "--resume", root)
    out, err = capsys.readouterr()
    assert code == 1
    assert "All tests, chained" not in out
    last = err.splitlines()[-1]
    assert "1 of 4 runs failed, the first of them window 1, seed 0" in last
    assert "last.safetensors: this is no whole checkpoint" in last
    assert f"go on with --resume {root}" in last


# ---------------------------------------------------------------- bad input


def test_nothing_is_left_of_one_that_is_refused(config, tmp_path, capsys):
    def refused(*words):
        return refusal(
            capsys, onegraph("walkforward", "--config", config, "--run-dir", "x", *words)
        )

    assert "months are asked for" in refused("--set", "walkforward.train_months=60")
    assert "has no bars to walk over" in refused("--set", "env.kind=chain")
    assert "walkforward.workers = 0: use 1 or more" in refused("--set", "walkforward.workers=0")
    assert list(tmp_path.iterdir()) == []


def test_folders_of_others_are_left_alone(config, tmp_path, capsys):
    def refused(*words):
        return refusal(capsys, onegraph("walkforward", *words))

    root = tmp_path / "x"
    root.mkdir()
    (root / "walkforward.json").write_text("{}")
    line = refused("--config", config, "--run-dir", root)
    assert line.startswith(f"{root} holds a walk-forward already; go on with it (--resume {root})")
    assert "this is no plan of a walk-forward" in refused("--resume", root)
    (root / "walkforward.json").unlink()
    (root / "metrics.jsonl").write_text("{}\n")
    assert "holds the metrics of another run" in refused("--config", config, "--run-dir", root)
    assert "holds no walkforward.json" in refused("--resume", root)
    line = refused("--resume", root, "--device", "host")
    assert line == f"--device host with --resume {root}: a walk-forward keeps its own; leave it out"


def test_one_seed_is_told_of_before_it_trains(config, monkeypatch, capsys):
    monkeypatch.setattr(
        "onegraph.trainer.cli.walkforward.run_missing", lambda *_: {RunId(0, 0): "stop here"}
    )
    words = ("--run-dir", "x", "--set", "walkforward.seeds=1")
    assert onegraph("walkforward", "--config", config, *words) == 1
    out, err = capsys.readouterr()
    assert "one seed has no spread" in err
    assert "2020-01-21 to 2020-02-27" in out


def test_without_matplotlib_it_says_so_before_it_trains(config, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    line = refusal(capsys, onegraph("walkforward", "--config", config, "--run-dir", "x"))
    assert "pip install 'onegraph[plot]'" in line
    assert "or leave the page out (--no-report)" in line
    assert not Path("x").exists()


def test_the_shipped_config_has_a_handful_of_windows():
    config = load_config("walkforward-sample")
    from onegraph.trainer.walkforward.plan import make_plan

    plan = make_plan(config)
    assert len(plan.windows) == 6
    assert len(plan.seeds) == 3
    assert (plan.overlap(), plan.gap_bars()) == (False, 0)
