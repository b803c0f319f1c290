"""``onegraph report``: the page of a real run, read back as a browser would."""

import itertools
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from page_reader import (
    HOSTILE,
    DrawingDevice,
    Page,
    browse,
    leads_to,
    loads_nothing,
    needs_browser,
    shown_without_complaint,
)

from onegraph.kernels.device import DeviceUnavailableError, HostDevice
from onegraph.stages.bench import device_words
from onegraph.stages.call_columns import CALL_COLUMNS
from onegraph.stages.page.charts import Chart, Series
from onegraph.stages.page.loop_report import loop_report
from onegraph.stages.registry import ALL, step_stages, up_to
from onegraph.trainer.action_values import q_table
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.cli import main
from onegraph.trainer.config import load_config
from onegraph.trainer.subject import TrainerSubject
from onegraph.trainer.trainer import Trainer

pytestmark = pytest.mark.slow

SECTIONS = ("stages", "phases", "calls", "learning", "policy", "graph", "config", "commands")

CHAIN = {
    "env.kind": "chain",
    "env.lanes": 4,
    "network.hidden": [8],
    "replay.capacity": 400,
    "learn.batch_size": 16,
    "loop.total_env_steps": 316,
    "loop.start_steps": 80,
    "loop.epoch_steps": 20,
    "loop.timed_steps": 4,
    "run_dir": HOSTILE,
}
MARKET = {
    **CHAIN,
    "env.kind": "market",
    "env.max_episode_steps": 40,
    "env.market.commission": 0.0005,
    "run_dir": "runs/market",
}


def onegraph(*words):
    return main([str(word) for word in words])


def train(folder, fields, *words):
    sets = [w for name, value in fields.items() for w in ("--set", f"{name}={_toml(value)}")]
    assert onegraph("train", "--device", "host", "--run-dir", folder, *sets, *words) == 0
    return folder


def _toml(value):
    return json.dumps(value) if isinstance(value, (str, list)) else value


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    folder = train(tmp_path_factory.mktemp("runs") / "a <b>run</b> & more", CHAIN)
    assert onegraph("report", folder) == 0
    return folder


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    folder = train(tmp_path_factory.mktemp("runs") / "market", MARKET)
    assert onegraph("report", folder, "--no-stages-bench") == 0
    return folder


@pytest.fixture
def copied(chain, tmp_path):
    """The chain's run, to be damaged."""
    return Path(shutil.copytree(chain, tmp_path / "run"))


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# ---------------------------------------------------------------- the page as a whole


def test_every_section_is_there_and_the_navigation_leads_to_it(chain):
    leads_to(Page(chain), SECTIONS)


@pytest.mark.parametrize("run", ["chain", "market"])
def test_the_page_loads_nothing(run, request):
    loads_nothing(Page(request.getfixturevalue(run)))


def test_hostile_names_and_config_strings_are_text(chain):
    page = Page(chain)
    assert HOSTILE.replace('"', '\\"') in page.text["config"]  # as TOML writes it
    assert not page.tags & {"script", "img", "b"}
    assert "a <b>run</b> & more" in page.text[""]
    quoted = f"'{chain / 'config.toml'}'"
    assert f"onegraph train --config {quoted} --stages 0-8 --device host" in page.text["commands"]


def test_a_chart_keeps_hostile_labels_as_text():
    x = np.arange(2)
    svg = Chart("c", HOSTILE, HOSTILE, "y").lines([Series(HOSTILE, x, x * 1.0)]).svg()
    reader = HTMLParser()
    met = []
    reader.handle_starttag = lambda tag, attrs: met.append(tag)
    reader.feed(svg)
    assert not {"script", "img"} & set(met)
    assert "&lt;script&gt;" in svg


@pytest.mark.parametrize("length", [3, 12, 20, 28])
def test_a_legend_fits_the_chart_however_long_its_names(length):
    x = np.arange(2)
    names = [f"{i}{'w' * (length - 1)}" for i in range(8)]
    chart = Chart("c", "t", "x", "y").lines([Series(name, x, x * 1.0) for name in names])
    chart.figure.draw_without_rendering()
    (legend,) = chart.figure.legends
    assert legend.get_window_extent().width <= chart.figure.bbox.width


def test_a_spread_shows_every_point_their_mean_and_what_they_are_held_against():
    points, marks = [[1.0, 2.0, 6.0], [-4.0]], [("flat", [0.0, 0.0]), ("hold", [5.0, -5.0])]
    chart = Chart("c", "t", "x", "", rows=2).spreads(["a", "b"], points, marks, name="seed")
    drawn = {line.get_label(): line.get_xydata().tolist() for line in chart.axes.get_lines()}
    assert drawn == {
        "seed": [[1, 0], [2, 0], [6, 0], [-4, 1]],
        "mean": [[3, 0], [-4, 1]],
        "flat": [[0, 0], [0, 1]],
        "hold": [[5, 0], [-5, 1]],
    }
    (ranges,) = chart.axes.collections
    assert [s.tolist() for s in ranges.get_segments()] == [[[1, 0], [6, 0]], [[-4, 1], [-4, 1]]]
    assert "hold" in chart.svg()


def test_numbers_on_an_axis_do_not_run_into_one_another():
    chart = Chart("c", "t", "x", "y", rows=1).bars(["a"], [70_000.0], [(6e4, 8e4)], ["1.00"])
    chart.figure.draw_without_rendering()
    ticks = [t.get_window_extent() for t in chart.axes.get_xticklabels() if t.get_text()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(ticks))


# ---------------------------------------------------------------- its numbers


def test_the_phases_are_those_of_the_last_epoch(chain):
    page, last = Page(chain), records(chain)[-1]
    phases = last["phases"]
    assert last["epoch"] == 3
    total = sum(phases["mean"].values())
    for name, mean in phases["mean"].items():
        assert page.row("phases", name)[1:4] == [
            f"{phases['last'][name]:.4f}",
            f"{mean:.4f}",
            f"{mean / total:.1%}",
        ]
    diagnosis = phases["diagnosis"]
    assert diagnosis[0].upper() + diagnosis[1:] + "." in page.text["phases"]
    assert f"took {last['step_ms']:.3f} ms" in page.text["phases"]
    assert f"{phases['busy_share']:.0%}" in page.text["phases"]
    assert phases["busy_share"] == pytest.approx(
        sum(phases["last"].values()) / last["step_ms"], abs=0.05
    )


def test_the_learning_table_has_every_epoch(chain):
    page, lines = Page(chain), records(chain)
    for e in lines:
        row = page.row("learning", str(e["epoch"]))
        assert row[1:5] == [
            f"{e['learn_steps']:,}",
            f"{e['env_steps']:,}",
            f"{e['loss']:.4g}",
            f"{e['q_mean']:.4g}",
        ]
    drawn = {"loss", "q", "td", "norm", "epsilon", "rate", "score"}
    assert drawn <= {name.removeprefix("figure-") for name in page.figures}


@pytest.mark.parametrize("stage", step_stages(), ids=lambda stage: stage.name)
def test_device_calls_and_nodes_are_what_the_ledger_counts(chain, stage):
    """The page reads the programs; here each stage runs, and the ledger counts."""
    config = load_config(chain / "config.toml")
    trainer = Trainer(config, HostDevice(), up_to(stage.number))
    while trainer.rows < config.loop.start_steps:
        trainer.collect()
    for _ in range(3):
        counted = trainer.learn().by_kind()
    page = Page(chain)
    header = next(r for r in page.tables["calls"] if r[0] == "stages")
    row = next(r for r in page.tables["calls"] if r[0].endswith(stage.name))
    shown = dict(zip(header[1:], map(int, row[1:]), strict=True))
    for column, kinds in CALL_COLUMNS.items():
        assert shown.get(column, 0) == sum(counted[k] for k in kinds), column
    assert shown["all calls"] == sum(counted.values())
    assert shown["graph nodes"] == sum(trainer.graph_nodes().values())
    trainer.close()


def test_the_stages_that_were_measured_here(chain):
    page = Page(chain)
    rows = [r for r in page.tables["stages"] if r[0] != "stages"]
    assert [r[0].split()[1] for r in rows] == [s.name for s in step_stages()]
    medians = [float(r[1].replace(",", "")) for r in rows]
    assert min(medians) > 0
    # A ratio is taken within a round, so it is no quotient of the medians beside it.
    assert rows[0][4] == "1.00×"
    for row, median in zip(rows, medians, strict=True):
        assert float(row[4].rstrip("×")) > 0
        assert float(row[2].replace(",", "")) <= median <= float(row[3].replace(",", ""))
    assert rows[-1][5:] == ["1", Page(chain).row("calls", rows[-1][0])[-1]]
    assert f"; {device_words(HostDevice())}." in page.text["stages"]


def test_the_graph_shows_each_child_with_its_kernels(chain):
    page = Page(chain)
    config = load_config(chain / "config.toml")
    trainer = Trainer(config, HostDevice(), frozenset(range(1, 6)))
    while trainer.rows < config.loop.start_steps:
        trainer.collect()
    trainer.learn()
    nodes = trainer.graph_nodes()
    assert nodes
    for name, n in nodes.items():
        assert page.row("graph", name)[1] == str(n)
    for kernel in ("sample_batch", "dqn_loss", "adam_step", "update_priorities"):
        assert kernel in page.figures["figure-graph"]
    assert f"{sum(nodes.values())} work nodes in {len(nodes)} clusters" in page.text["graph"]
    trainer.close()


def test_action_values_are_those_of_the_best_checkpoint(chain):
    page = Page(chain)
    loaded = load_checkpoint(chain / "checkpoints" / "best.safetensors")
    trainer = Trainer(loaded.config, HostDevice(), frozenset())
    trainer.restore(loaded.state, loaded.progress)
    learned = q_table(trainer, trainer.environment)
    gamma = loaded.config.learn.gamma
    for s in range(5):  # walking right pays 1 at the end: Q(s, right) = gamma ^ steps to go
        right = page.row("policy", str(s))[2]
        assert right == f"{learned[s, 1]:.5f} / {gamma ** (4 - s):.5f}"
    best = max(records(chain), key=lambda e: e["score"])
    assert f"is {best['extra']['max_q_error']:.3g}, over states" in page.text["policy"]
    trainer.close()


def test_equity_figures_are_those_that_evaluate_prints(market, capsys):
    page = Page(market)
    assert onegraph("evaluate", market / "checkpoints" / "best.safetensors") == 0
    printed = capsys.readouterr().out
    for name in ("policy", "flat", "buy and hold"):
        line = next(line for line in printed.splitlines() if f"│ {name} " in line)
        assert [cell.strip() for cell in line.split("│")[1:-1]] == page.row("policy", name)
        assert name in page.figures["figure-equity"]


# ---------------------------------------------------------------- what may be missing


def spread(median, low, high):
    return {"median": median, "low": low, "high": high}


def test_a_benchmark_in_the_run_folder_goes_before_measuring(copied):
    row = {
        "label": "0 legacy",
        "us": spread(4321.5, 4000, 5000),
        "speed_up": spread(1.0, 1.0, 1.0),
        "calls": {"launch": 40, "sync": 3},
        "nodes": 0,
    }
    fast = {
        **row,
        "label": "0-6 parent-graph",
        "us": spread(432.15, 400, 500),
        "speed_up": spread(10.0, 9.0, 11.0),
        "nodes": 31,
    }
    bench = {"subject": "M", "device": "cuda (H200)", "entries": [row, fast], "rounds": 1}
    (copied / "bench.json").write_text(json.dumps({"results": [bench]}))
    assert onegraph("report", copied) == 0
    page = Page(copied)
    assert page.row("stages", "0 legacy")[1:] == [
        "4,321.5", "4,000.0", "5,000.0", "1.00×", "43", "0",
    ]  # fmt: skip
    assert page.row("stages", "0-6 parent-graph")[1:5:3] == ["432.1", "10.00×"]
    assert "M; cuda (H200)" in page.text["stages"]
    assert "10.00×" in page.text[""]  # the tile


def test_what_is_missing_is_said_in_words(tmp_path):
    folder = train(tmp_path / "run", {**MARKET, "loop.timed_steps": 0})
    shutil.rmtree(folder / "checkpoints")
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace('data = "sample"', 'data = "gone.csv"'))
    assert onegraph("report", folder, "--out", folder / "report.html") == 0
    page = Page(folder)
    assert "No phase was timed" in page.text["phases"]
    assert "holds no checkpoint" in page.text["policy"]
    for name in ("stages", "calls", "graph"):
        assert ": gone.csv: it cannot be opened" in page.text[name]


def test_a_damaged_checkpoint_is_said_in_words(copied):
    (copied / "checkpoints" / "best.safetensors").write_bytes(b"nonsense")
    assert onegraph("report", copied, "--no-stages-bench") == 0
    page = Page(copied)
    assert "best.safetensors: this is no whole checkpoint" in page.text["policy"]
    assert "measuring was switched off" in page.text["stages"]


def test_an_epoch_that_stands_twice_is_shown_once_and_figures_may_be_null(copied):
    lines = records(copied)
    lines[1] |= {"loss": 123.5, "td_mean": None}
    del lines[2]["phases"]["busy_share"]  # a file of an earlier version
    with (copied / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines[1:])
    assert onegraph("report", copied, "--no-stages-bench") == 0
    page = Page(copied)
    assert [r[0] for r in page.tables["learning"]] == ["epoch", "1", "2", "3"]
    assert page.row("learning", "2")[3] == "123.5"
    assert page.row("learning", "2")[5] == "–"
    assert "2 lines of metrics.jsonl repeat an epoch" in page.text["learning"]


def cut_short(folder):
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text[: text.rindex('"epoch": 3') + 40])


def wrong_type(folder):
    lines = records(folder)
    lines[1]["loss"] = "high"
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))


def not_utf8(folder):
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\n")


def half_a_benchmark(folder):
    bench = {"subject": "M", "device": "x", "entries": [{"label": "0 legacy"}]}
    (folder / "bench.json").write_text(json.dumps({"results": [bench]}))


def slow_benchmark(folder):
    row = {"label": "0 legacy", "us": spread(-1, 1, 1), "speed_up": spread(1, 1, 1), "nodes": 0}
    bench = {"subject": "M", "device": "x", "entries": [{**row, "calls": {}}]}
    (folder / "bench.json").write_text(json.dumps({"results": [bench]}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut_short, "metrics.jsonl, line 3: "),
        (wrong_type, "metrics.jsonl, line 2: loss = 'high'"),
        (not_utf8, "metrics.jsonl, line 4: not UTF-8"),
        (lambda f: (f / "metrics.jsonl").write_text("\n"), "no epoch has ended yet"),
        (lambda f: (f / "metrics.jsonl").unlink(), "holds no metrics.jsonl"),
        (lambda f: (f / "config.toml").unlink(), "holds no config.toml"),
        (lambda f: (f / "config.toml").write_text("sede = 1"), "did you mean seed?"),
        (shutil.rmtree, "there is no such run folder"),
        (half_a_benchmark, "bench.json: results.0.entries.0.us: "),
        (slow_benchmark, "bench.json: results.0.entries.0.us.median = -1: "),
        (lambda f: (f / "bench.json").write_text("{"), "bench.json: "),
        (lambda f: (f / "report.html").unlink() or (f / "report.html").mkdir(), "report.html"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line(copied, capsys, damage, said):
    damage(copied)
    assert onegraph("report", copied, "--no-stages-bench") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("onegraph: error: ")
    assert said in line


def test_an_unknown_device_is_a_command_that_cannot_be_read(chain, capsys):
    assert onegraph("report", chain, "--device", "gpu") == 2
    assert "'gpu' is none of auto, cuda, host" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named_before_any_work(chain, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("onegraph.trainer.cli.report.gather", None)
    assert onegraph("report", chain) == 1
    assert "pip install 'onegraph[plot]'" in capsys.readouterr().err


def test_where_there_is_a_driver_its_graph_is_drawn_too(copied, monkeypatch):
    monkeypatch.setattr("onegraph.trainer.page.facts.open_device", lambda kind: DrawingDevice())
    assert onegraph("report", copied, "--no-stages-bench") == 0
    page = Page(copied)
    total = int(re.search(r"(\d+) work nodes", page.text["graph"])[1])
    assert f"{total} work nodes, where the program states {total}" in page.text["graph"]
    drawn = page.figures["figure-driver"]
    for name in ("per_sample", "ddqn", "per_priority", "sample_batch", "adam_step"):
        assert name in drawn
    assert "digraph dot" in page.text["graph"]


def test_a_device_that_is_not_to_be_had_is_named_and_the_host_taken(copied, monkeypatch):
    def open_device(kind):
        if kind == "cuda":
            raise DeviceUnavailableError("no CUDA driver")
        return HostDevice()

    monkeypatch.setattr("onegraph.trainer.page.facts.open_device", open_device)
    lines = [line | {"device": "cuda (NVIDIA H200)"} for line in records(copied)]
    (copied / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert onegraph("report", copied, "--no-stages-bench") == 0
    page = Page(copied)
    assert "device cuda (NVIDIA H200)" in page.text[""]
    assert "Measured for this page on host (NumPy): the run's device, cuda, is not" in page.text[""]
    assert onegraph("report", copied, "--device", "cuda") == 1


# ---------------------------------------------------------------- the page about any loop


@pytest.mark.parametrize("program", ["learn", "collect"])
def test_the_trainer_is_a_loop_like_any_other(chain, tmp_path, program):
    subject = TrainerSubject(load_config(chain / "config.toml"))
    facts = loop_report(
        subject, HostDevice, tmp_path / "report.html", sets=[ALL], steps=6, rounds=1,
        program=program,
    )  # fmt: skip
    assert facts.verification.ok
    page = Page(tmp_path)
    loads_nothing(page)
    last = [row for row in page.tables["calls"] if row[0] == "0-8 epoch-graph"]
    assert [row[1] for row in last] == ["learn", "collect", "epoch"]
    assert {row[3] for row in last} == {"1/1"}
    assert page.row("stages", "0-8 epoch-graph")[5] == "1"
    drawn = "adam_step" if program == "learn" else "env_tabular"
    assert drawn in page.figures["figure-graph"]


# ---------------------------------------------------------------- in a browser


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, 1), (500, 0)], ids=["light", "dark, narrow"])
def test_a_browser_shows_the_page_without_complaint(market, tmp_path, width, scheme):
    shown_without_complaint(market / "report.html", tmp_path, width, scheme)


@needs_browser
def test_a_browser_says_so_when_a_page_complains(tmp_path):
    """The console check can fail: here is a page that would load something."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">"
        "<img src=http://127.0.0.1:9/x.png>"
    )
    assert "CONSOLE" in browse(page, tmp_path, "--dump-dom").stderr


@needs_browser
def test_a_browser_reads_the_page_as_it_was_written(market, tmp_path):
    dom = browse(market / "report.html", tmp_path, "--dump-dom").stdout
    (tmp_path / "report.html").write_text(dom, encoding="utf-8")
    read = Page(tmp_path, void=("meta", "link", "img"))  # a DOM closes what SVG left to itself
    written = Page(market)
    assert read.tables == written.tables
    assert sorted(read.ids) == sorted(written.ids)
