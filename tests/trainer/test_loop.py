"""Epochs: what is logged, timed, evaluated, kept, and stopped early."""

import io
import json
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from trainer.setups import make, market, short

from onegraph.kernels.device import HostDevice
from onegraph.trainer import loop as loop_module
from onegraph.trainer import progress as progress_module
from onegraph.trainer.action_values import q_error, q_table
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.config import load_config
from onegraph.trainer.loop import InterruptedRunError, Loop
from onegraph.trainer.progress import ProgressDisplay

pytestmark = pytest.mark.slow

#: Three epochs of 16 learning steps after 16 vector steps of filling, less the last two steps.
RUN = {"loop__total_env_steps": 64 + 4 * (3 * 16 - 1 - 2), "loop__timed_steps": 4}

#: What depends on the clock.
CLOCK = ("seconds", "step_ms", "phases")


def run(folder, config, stages="all", stop=lambda: False):
    trainer = make(HostDevice(), config, stages)
    loop = Loop(trainer, folder, stop=stop)
    loop.run()
    return trainer, loop


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def figures(folder):
    return [{k: v for k, v in line.items() if k not in CLOCK} for line in lines(folder)]


def after(checks):
    """A `stop` that says yes at its `checks`-th question."""
    asked = iter(range(10**9))
    return lambda: next(asked) >= checks


def test_an_epoch_is_a_line_of_metrics(tmp_path):
    config = short(**RUN)
    trainer, loop = run(tmp_path, config)
    found = lines(tmp_path)
    assert [(x["epoch"], x["learn_steps"], x["env_steps"]) for x in found] == [
        (1, 16, 64 + 4 * 15),
        (2, 32, 64 + 4 * 31),
        (3, 46, 64 + 4 * 45),  # the run's end
    ]
    assert trainer.progress.learns == 46
    assert [e.epoch for e in loop.epochs] == [1, 2, 3]
    # The means are over the epoch's steps, all of which the ring still holds.
    last = trainer.history(14)
    for name, field in (("loss", "loss"), ("q_mean", "q_mean"), ("grad_norm", "grad_norm")):
        assert found[-1][name] == pytest.approx(float(np.mean(last[field])), rel=1e-12)
    assert found[-1]["td_mean"] == pytest.approx(float(np.mean(last["td_mean"])))
    assert found[-1]["epsilon"] == last["epsilon"][-1]
    for line in found:
        assert line["seconds"] >= line["step_ms"] / 1e3 > 0
        assert line["extra"]["max_q_error"] == -line["score"]
        assert (line["skipped"], line["invalid_rows"], line["nonfinite_td"]) == (0, 0, 0)
        assert line["validation"] is None
    assert found[-1]["score"] == -q_error(trainer, trainer.environment)
    assert load_config(tmp_path / "config.toml") == config


@pytest.mark.parametrize(
    ("stages", "wanted"),
    [
        ("6", [3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 45]),
        # After the first, which captures, the others are in the device's loop, and the epoch's last
        # four are launched one by one.
        ("all", range(1, 13)),
    ],
)
def test_the_timed_steps_are_spread_evenly_and_end_the_epoch(tmp_path, monkeypatch, stages, wanted):
    trainer = make(HostDevice(), short(**RUN), stages)
    learn = trainer.learn

    def watched(*, timed: bool = False):
        seen.append(timed)
        return learn(timed=timed)

    seen: list[bool] = []
    monkeypatch.setattr(trainer, "learn", watched)
    Loop(trainer, tmp_path).run()
    timed = [k for k, was in enumerate(seen) if was]
    assert timed == list(wanted)
    for line in lines(tmp_path):
        phases = line["phases"]
        assert phases["timed_steps"] == 4
        assert len(phases["mean"]) == 12
        assert set(phases["last"]) == set(phases["mean"])
        assert "phase" in phases["diagnosis"]


@pytest.mark.parametrize(
    ("stages", "timed"), [("all", 0), ("all,-phase-events", 4)], ids=["K = 0", "no events"]
)
def test_without_timed_steps_there_is_no_report_and_step_ms_all_the_same(tmp_path, stages, timed):
    run(tmp_path, short(**RUN | {"loop__timed_steps": timed}), stages)
    for line in lines(tmp_path):
        assert line["phases"] is None
        assert line["step_ms"] > 0


@pytest.mark.parametrize(("learn_every", "per_collect"), [(1, 1), (3, 1), (1, 4), (2, 5)])
def test_collecting_and_learning_alternate_as_the_config_says(tmp_path, learn_every, per_collect):
    config = short(
        loop__learn_every=learn_every,
        loop__learns_per_collect=per_collect,
        loop__epoch_steps=20,
        loop__total_env_steps=64 + 4 * learn_every * 11,
    )
    trainer = make(HostDevice(), config, "6")
    calls = []
    collect, learn = trainer.collect, trainer.learn
    trainer.collect = lambda: calls.append("c") or collect()
    trainer.learn = lambda *, timed=False: calls.append("l") or learn(timed=timed)
    Loop(trainer, tmp_path).run()
    text = "".join(calls)
    before, _, rest = text.partition("l")
    assert len(before) * 4 >= 64 > (len(before) - learn_every) * 4
    rounds = ("l" + rest).split("c" * learn_every)
    # A round ends at an epoch's end, too.
    assert {len(r) for r in rounds} <= {per_collect, 20 % per_collect}
    assert text.count("c") * 4 >= config.loop.total_env_steps


def test_evaluation_is_logged_and_scores_the_epoch(tmp_path):
    config = market(**RUN | {"loop__start_steps": 64, "replay__capacity": 100})
    trainer, loop = run(tmp_path, config)
    for line in lines(tmp_path):
        validation = line["validation"]
        assert line["score"] == validation["sharpe"]
        window = trainer.market.windows.validation
        assert validation["bars"] == window.stop - window.start - 1
        assert validation["max_drawdown"] <= 0
    best = load_checkpoint(loop.best_checkpoint)
    scores = [line["score"] for line in lines(tmp_path)]
    assert best.progress.best_score == max(scores)
    assert best.progress.epoch == 1 + scores.index(max(scores))


def scripted(monkeypatch, scores):
    """Give the epochs these scores."""
    remaining = iter(scores)
    monkeypatch.setattr("onegraph.trainer.validation.q_error", lambda *_: -next(remaining))


def test_the_best_checkpoint_is_that_of_the_best_score(tmp_path, monkeypatch):
    scripted(monkeypatch, [1.0, 3.0, 2.0])
    _, loop = run(tmp_path, short(**RUN))
    best, last = load_checkpoint(loop.best_checkpoint), load_checkpoint(loop.last_checkpoint)
    assert (best.progress.epoch, best.progress.learns, best.progress.best_score) == (2, 32, 3.0)
    assert (last.progress.epoch, last.progress.epochs_without_gain) == (3, 1)


def test_a_run_stops_after_epochs_without_a_gain(tmp_path, monkeypatch):
    scripted(monkeypatch, [1.0, 1.05, 1.08, 9.0])
    config = short(
        loop__total_env_steps=4_000,
        loop__early_stop_epochs=2,
        loop__early_stop_min_delta=0.1,
    )
    _, loop = run(tmp_path, config)
    assert [e.score for e in loop.epochs] == [1.0, 1.05, 1.08]
    assert load_checkpoint(loop.last_checkpoint).progress.epoch == 3
    assert load_checkpoint(loop.best_checkpoint).progress.epoch == 1


def test_a_gain_starts_the_count_anew(tmp_path, monkeypatch):
    scripted(monkeypatch, [1.0, 0.0, 2.0, 1.0, 1.0])
    config = short(loop__total_env_steps=4_000, loop__early_stop_epochs=2)
    _, loop = run(tmp_path, config)
    assert len(loop.epochs) == 5


def test_a_score_that_is_no_number_is_never_the_best(tmp_path, monkeypatch):
    scripted(monkeypatch, [math.nan, 1.0, math.nan])
    _, loop = run(tmp_path, short(**RUN))
    assert load_checkpoint(loop.best_checkpoint).progress.epoch == 2
    assert [line["score"] for line in lines(tmp_path)] == [None, 1.0, None]


def test_without_a_score_the_last_state_is_the_best(tmp_path, monkeypatch):
    scripted(monkeypatch, [math.nan] * 3)
    _, loop = run(tmp_path, short(**RUN))
    best, last = loop.best_checkpoint.read_bytes(), loop.last_checkpoint.read_bytes()
    assert best == last


@pytest.mark.parametrize(("every", "kept"), [(1, [16, 32, 46]), (2, [32, 46]), (0, [46])])
def test_checkpoints_are_written_every_so_many_epochs_and_at_the_end(
    tmp_path, monkeypatch, every, kept
):
    written = []
    trainer = make(HostDevice(), short(**RUN, loop__checkpoint_every=every))
    loop = Loop(trainer, tmp_path)
    save = loop._save

    def watched(path):
        if path == loop.last_checkpoint:
            written.append(trainer.progress.learns)
        save(path)

    monkeypatch.setattr(loop, "_save", watched)
    loop.run()
    assert sorted(set(written)) == kept


# ------------------------------------------------------------------------ stopping and going on


@pytest.mark.parametrize("stages", ["0", "3,1", "4", "all"])
@pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")
@pytest.mark.parametrize("checks", [3, 25], ids=lambda n: f"at question {n}")
def test_a_run_that_is_stopped_and_resumed_is_the_run_that_was_not(tmp_path, stages, checks):
    config = short(**RUN)
    straight, _ = run(tmp_path / "straight", config, stages)
    with pytest.raises(InterruptedRunError) as stopped:
        run(tmp_path / "halves", config, stages, after(checks))
    saved = load_checkpoint(stopped.value.checkpoint)
    assert saved.progress.learns < 46
    second = make(HostDevice(), config, stages)
    second.restore(saved.state, saved.progress)
    Loop(second, tmp_path / "halves").run()
    assert figures(tmp_path / "halves") == figures(tmp_path / "straight")
    assert len(figures(tmp_path / "halves")) == 3
    for name in ("last", "best"):
        halves, whole = (
            (tmp_path / x / "checkpoints" / f"{name}.safetensors").read_bytes()
            for x in ("halves", "straight")
        )
        assert halves == whole
    assert second.progress == straight.progress


def test_a_finished_run_that_is_resumed_does_nothing(tmp_path):
    config = short(**RUN)
    _, loop = run(tmp_path, config)
    before = loop.last_checkpoint.read_bytes()
    saved = load_checkpoint(tmp_path)
    second = make(HostDevice(), config)
    second.restore(saved.state, saved.progress)
    assert Loop(second, tmp_path).run() == []
    assert loop.last_checkpoint.read_bytes() == before
    assert len(lines(tmp_path)) == 3


@pytest.mark.parametrize("stages", ["6", "all"])
def test_a_run_that_is_out_of_time_ends_and_can_be_resumed(tmp_path, stages, monkeypatch):
    config = short(**RUN)
    straight, _ = run(tmp_path / "straight", config, stages)
    limited = short(**RUN, loop__time_limit_s=30)
    trainer = make(HostDevice(), limited, stages)
    clock = SimpleNamespace(
        monotonic=lambda: float(trainer.seen_learns), perf_counter=time.perf_counter
    )
    monkeypatch.setattr(loop_module, "time", clock)
    assert [e.epoch for e in Loop(trainer, tmp_path / "halves").run()] == [1]
    saved = load_checkpoint(tmp_path / "halves")
    assert saved.progress.learns == 30
    second = make(HostDevice(), config, stages)
    second.restore(saved.state, saved.progress)
    Loop(second, tmp_path / "halves").run()
    assert figures(tmp_path / "halves") == figures(tmp_path / "straight")
    assert second.progress == straight.progress


# ------------------------------------------------------------------------ display


def test_elsewhere_than_on_a_terminal_progress_is_plain_lines(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    with ProgressDisplay(1000, "stages 0-6", console=Console(file=out)) as display:
        for second in range(25):
            clock[0] = float(second)
            display.update(second * 10, "epoch 1")
        display.say("epoch 1 · [bold] loss 1")
    assert out.getvalue().splitlines() == [
        "stages 0-6: 100 of 1,000 epoch 1",
        "stages 0-6: 200 of 1,000 epoch 1",
        "epoch 1 · [bold] loss 1",
    ]


def test_on_a_terminal_progress_is_one_live_line():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, legacy_windows=False)
    with ProgressDisplay(1000, "stages 0-6", console=console) as display:
        display.update(500, "epoch 1")
        display.say("a line that stays")
    assert "500/1000" in out.getvalue()
    assert "a line that stays" in out.getvalue()


def test_an_epoch_says_what_it_did_on_standard_error(tmp_path, capsys):
    run(tmp_path, short(**RUN))
    out, err = capsys.readouterr()
    assert out == ""
    first = err.splitlines()[0]
    assert first.startswith("epoch 1 · 124 env steps · loss ")
    for part in (" · Q ", " · step_ms ", " s · score "):
        assert part in first


def test_the_table_of_action_values_is_that_of_the_network(tmp_path):
    trainer, _ = run(tmp_path, short(**RUN))
    q = q_table(trainer, trainer.environment)
    assert q.shape == (5, 2)
    exact = trainer.environment.optimal_q(0.9)
    assert q_error(trainer, trainer.environment) == np.abs(q - exact).max()
