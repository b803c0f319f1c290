"""The sections of the page, each from the facts to HTML."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onegraph.stages.bench import Spread
from onegraph.stages.page.charts import Chart, Series
from onegraph.stages.page.graph_drawing import from_program
from onegraph.stages.page.markup import (
    Missing,
    command,
    figure,
    grid,
    missing,
    number,
    paragraph,
    section,
    sentence,
    table,
    text,
)
from onegraph.stages.page.step_figures import (
    StepCalls,
    StepTime,
    calls_figure,
    diagnosis,
    graph_figures,
    graph_words,
    phase_parts,
    phase_table,
    step_times,
    used_columns,
)
from onegraph.stages.registry import format_set, stage_names
from onegraph.trainer.config import config_to_toml
from onegraph.trainer.market import comparison_rows
from onegraph.trainer.page.episode_curves import episode_curves
from onegraph.trainer.page.facts import Facts, recorded_kind
from onegraph.trainer.page.part_curves import part_curves
from onegraph.trainer.page.run_folder import EpochRecord, PhaseRecord
from onegraph.trainer.stage_times import Percentiles

#: Rows of action values that the page lists.
MOST_STATES = 100


def _config_of(facts: Facts) -> tuple[str, str]:
    return "--config", str(facts.run.config_path)


# ---------------------------------------------------------------- step time by stage


def step_time(facts: Facts) -> str:
    """Median step time by stage, with ratios."""
    title = "Step time by stage"
    times = facts.times
    if isinstance(times, Missing):
        return section("stages", title, missing("The stages were not timed", times.reason))
    rows = [
        StepTime(
            row.label,
            _spread(row.us),
            _spread(row.speed_up),
            sum(row.calls.values()),
            row.nodes,
        )
        for row in times.entries
    ]
    if facts.times_from is not None:
        how, source = "From the benchmark in the run folder", str(facts.times_from)
    else:
        how = "Measured briefly for this page, the stages in turn"
        source = command("onegraph", "report", facts.run.path, "--stages-bench")
    where = f"{times.subject}; {times.device}"
    return section("stages", title, step_times(rows, "a learning step", f"{where}. {how}:", source))


def _spread(read: Percentiles) -> Spread:
    return Spread(read.median, read.low, read.high)


# ---------------------------------------------------------------- phases


def phases(facts: Facts) -> str:
    """Where a step's time goes, epoch by epoch, and what that means."""
    title = "Time by phase"
    timed = [(e.epoch, e.phases) for e in facts.run.epochs if e.phases is not None]
    if not timed:
        return section(
            "phases",
            title,
            missing(
                "No phase was timed",
                "the run had stage 3 (phase-events) off, or loop.timed_steps = 0",
            ),
            paragraph(_step_walls(facts.run.epochs[-1], None)),
        )
    epoch, last = timed[-1]
    record = next(e for e in facts.run.epochs if e.epoch == epoch)
    chart = Chart("phase-times", title, "epoch", "ms a learning step").stacked_columns(
        [e for e, _ in timed], phase_parts([p.mean for _, p in timed])
    )
    where = "the run's device"
    return section(
        "phases",
        title,
        diagnosis(sentence(last.diagnosis)),
        paragraph(_step_walls(record, last)),
        figure(
            "figure-phases",
            "Phases of a learning step, by epoch",
            chart.svg(),
            f"Mean of the timed steps of each epoch, on {record.device or where}. From",
            str(facts.run.path / "metrics.jsonl"),
        ),
        f"<h3>Epoch {epoch}</h3>",
        phase_table(last.last, last.mean, last.host, last.timed_steps),
    )


def _step_walls(epoch: EpochRecord, phases: PhaseRecord | None) -> str:
    """The wall times of an epoch's steps, in words."""
    said = [
        f"Epoch {epoch.epoch}: a learning step run alone took {number(epoch.step_ms, '.3f')} ms of"
        " wall time"
    ]
    if phases is not None and phases.phases_ms is not None and phases.busy_share is not None:
        said.append(
            f"its phases sum to {phases.phases_ms:.3f} ms, and the device was at work in"
            f" {phases.busy_share:.0%} of it"
        )
    if phases is not None and phases.wall_ms is not None:
        said.append(f"over the epoch one took {phases.wall_ms:.3f} ms with its share of collecting")
    return "; ".join(said) + "."


# ---------------------------------------------------------------- device calls


def calls(facts: Facts) -> str:
    """Device calls of a learning step by stage."""
    title = "Device calls by stage"
    if isinstance(facts.calls, Missing):
        return section("calls", title, missing("The programs can't be made", facts.calls.reason))
    rows = [StepCalls(f"{c.label} {c.name}", c.calls, c.nodes) for c in facts.calls]
    columns, counted = used_columns(rows)
    return section(
        "calls",
        title,
        paragraph(
            f"A learning step in steady state makes {sum(counted[0])} device calls at stage 0 and"
            f" {sum(counted[-1])} at {rows[-1].label}."
        ),
        calls_figure(
            rows,
            "learning step",
            "As the programs state them; the ledger holds each step to it. A program in full:",
            command("onegraph", "stages", "show", "0", *_config_of(facts)),
        ),
        table(
            ("stages", *columns, "all calls", "graph nodes"),
            [
                (row.label, *figures, sum(figures), row.nodes)
                for row, figures in zip(rows, counted, strict=True)
            ],
        ),
    )


# ---------------------------------------------------------------- learning


def learning(facts: Facts) -> str:
    """Loss, values and schedules over the run."""
    epochs = facts.run.epochs
    x = np.array([e.learn_steps for e in epochs])

    def curve(name: str, y_label: str, title: str, caption: str, *fields: str, log: bool) -> str:
        series = [Series(LEGENDS.get(f, f), x, _values(epochs, f)) for f in fields]
        positive = all(np.all(s.y[np.isfinite(s.y)] > 0) for s in series)
        drawn = [s for s in series if np.isfinite(s.y).any()]
        if not drawn:
            return missing(title, "no epoch has a finite figure")
        chart = Chart(name, title, "learning steps", y_label)
        scale = " Logarithmic scale." if log and positive else ""
        svg = chart.lines(drawn, log=log and positive).svg()
        return figure(f"figure-{name}", title, svg, f"{caption}{scale}")

    figures = [
        curve("loss", "loss", "Loss", "Mean over each epoch.", "loss", log=True),
        curve("q", "Q", "Action value", "Mean Q of the drawn actions.", "q_mean", log=False),
        curve("td", "TD error", "TD error", "Mean |TD error| of an epoch.", "td_mean", log=False),
        curve("norm", "2-norm", "Gradient norm", "Before clipping.", "grad_norm", log=True),
        curve("epsilon", "epsilon", "Exploration", "At each epoch's end.", "epsilon", log=False),
        curve(
            "rate", "learning rate", "Learning rate", "At each epoch's end.", "learning_rate",
            log=False,
        ),
    ]  # fmt: skip
    if any(e.score is not None for e in epochs):
        what = SCORES.get(facts.run.config.env.kind, "Largest error of the action values, negated.")
        figures.append(curve("score", "score", "Score", what, "score", log=False))
    figures += episode_curves(epochs)
    figures += part_curves(epochs)
    notes = []
    if facts.run.repeated:
        notes.append(
            f"{facts.run.repeated} lines of metrics.jsonl repeat an epoch, as after going on from"
            " an older checkpoint; the later one is shown."
        )
    last = epochs[-1]
    if last.skipped or last.nonfinite_td or last.invalid_rows:
        notes.append(
            f"{last.skipped} steps were skipped for a gradient that was not finite,"
            f" {last.nonfinite_td} TD errors were not finite, and {last.invalid_rows} rows were"
            " inserted with a reward or state that was not."
        )
    rows = [
        (
            e.epoch,
            f"{e.learn_steps:,}",
            f"{e.env_steps:,}",
            number(e.loss, ".4g"),
            number(e.q_mean, ".4g"),
            number(e.td_mean, ".4g"),
            number(e.epsilon, ".3f"),
            number(e.learning_rate, ".3g"),
            number(e.score, ".4g"),
            number(e.step_ms, ".3f"),
            number(e.seconds, ".1f"),
        )
        for e in epochs
    ]
    columns = (
        "epoch", "learn steps", "env steps", "loss", "Q", "TD", "epsilon", "lr", "score", "step_ms",
        "seconds",
    )  # fmt: skip
    listing = table(columns, rows[-60:], left=0)
    if len(rows) > 60:
        notes.append(f"The table lists the last 60 of {len(rows)} epochs.")
    origin = f"One point an epoch, from {facts.run.path / 'metrics.jsonl'}."
    return section(
        "learning", "Learning", *map(paragraph, (origin, *notes)), grid(*figures), listing
    )


SCORES = {
    "market": "Sharpe ratio of the greedy policy on the validation window.",
    "bit-flip": "Share of the greedy episodes that reach their goal.",
    "gymnasium": "Mean return of the greedy validation episodes.",
}
LEGENDS = {"q_mean": "Q", "td_mean": "TD error"}


def _values(epochs: Sequence[EpochRecord], field: str) -> NDArray[np.float64]:
    values = [getattr(e, field) for e in epochs]
    return np.array([np.nan if v is None else v for v in values], np.float64)


# ---------------------------------------------------------------- the policy


def policy(facts: Facts) -> str:
    """Equity against the baselines, or action values against the exact ones."""
    found = facts.policy
    if isinstance(found, Missing):
        return section("policy", "Policy", missing("There is no policy to show", found.reason))
    checkpoint = facts.run.checkpoint
    origin = command("onegraph", "evaluate", checkpoint)
    which = f"{checkpoint}, after {found.learns:,} learning steps"
    if found.curves:
        # The first point has no bar behind it, so each line starts at its first bar's end.
        series = [
            Series(name, c.time.astype("datetime64[ns]"), c.equity[1:])
            for name, c in found.curves.items()
        ]
        chart = Chart("equity", "Equity", "end of bar (UTC)", "equity").lines(series)
        header, *compared = comparison_rows(found.figures)
        body = (
            paragraph(
                f"The greedy policy of {which}, over the test window that no choice was made on,"
                " beside holding nothing and holding throughout, at the same costs."
            ),
            figure("figure-equity", "Equity over the test window", chart.svg(), "From", origin),
            table(header, compared),
        )
        return section("policy", "Policy", *body)
    if found.learned is None or found.exact is None:
        env = facts.run.config.env
        reason = f"{env.id or env.kind} has neither a test window nor exact action values"
        return section("policy", "Policy", missing("There is nothing to compare with", reason))
    states = np.arange(len(found.exact))
    series = [
        Series("learned", states, found.learned.max(axis=1).astype(np.float64)),
        Series("exact", states, found.exact.max(axis=1)),
    ]
    chart = Chart("values", "State values", "state", "value of the best action").lines(series)
    actions = range(found.exact.shape[1])
    rows: list[Sequence[object]] = [
        (s, *(f"{found.learned[s, a]:.5f} / {found.exact[s, a]:.5f}" for a in actions))
        for s in states[:MOST_STATES].tolist()
    ]
    more = f" The first {MOST_STATES} states." if len(states) > MOST_STATES else ""
    return section(
        "policy",
        "Policy",
        paragraph(
            f"Action values of {which}, against the exact ones by value iteration: the largest"
            f" error is {found.error:.3g}, over states that can be visited."
        ),
        figure("figure-values", "Value of each state", chart.svg(), "From", origin),
        paragraph(f"Learned / exact action values.{more}"),
        table(("state", *(f"action {a}" for a in actions)), rows),
    )


# ---------------------------------------------------------------- the graph


def graph(facts: Facts) -> str:
    """The step's graph, children as clusters."""
    title = "The step as a graph"
    if isinstance(facts.program, Missing):
        return section("graph", title, missing("The graph can't be drawn", facts.program.reason))
    words = graph_words("a learning step", stage_names(facts.stages), facts.program)
    source = command("onegraph", "stages", "show", format_set(facts.stages), *_config_of(facts))
    return section(
        "graph",
        title,
        paragraph(words),
        graph_figures(from_program(facts.program), facts.driver, "Read downwards. From", source),
    )


# ---------------------------------------------------------------- config and commands


def config(facts: Facts) -> str:
    """The configuration as the run resolved it."""
    return section(
        "config",
        "Configuration",
        paragraph(f"As the run resolved it, {facts.run.config_path}."),
        f"<pre>{text(config_to_toml(facts.run.config))}</pre>",
    )


def commands(facts: Facts) -> str:
    """What reproduces the run and each figure."""
    run, device = facts.run, recorded_kind(facts.run)
    train = command(
        "onegraph", "train", *_config_of(facts), "--stages", format_set(facts.stages),
        "--device", device, "--run-dir", f"{run.path}-again",
    )  # fmt: skip
    rows = [
        ("the run (a new folder)", train),
        ("this page", command("onegraph", "report", run.path)),
        ("step time by stage", command("onegraph", "report", run.path, "--stages-bench")),
        ("device calls, graph", command(
            "onegraph", "stages", "show", format_set(facts.stages), *_config_of(facts)
        )),
        ("what a stage changes", command("onegraph", "stages", "diff", 0, 1, *_config_of(facts))),
    ]  # fmt: skip
    if run.checkpoint is not None:
        rows.append(("policy", command("onegraph", "evaluate", run.checkpoint)))
    listed = "".join(
        f'<h3>{text(what)}</h3><pre class="command">{text(line)}</pre>' for what, line in rows
    )
    plain = f"Time by phase and the learning curves are those of {run.path / 'metrics.jsonl'}."
    return section("commands", "Commands", listed, paragraph(plain))
