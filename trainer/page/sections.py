"""The sections of the page, each from the facts to HTML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onegraph.stages.registry import format_set
from onegraph.trainer.config import config_to_toml
from onegraph.trainer.market import comparison_rows
from onegraph.trainer.page.charts import COLOURS, Chart, Series
from onegraph.trainer.page.facts import Facts, Missing, recorded_kind
from onegraph.trainer.page.graph_drawing import Cluster, draw
from onegraph.trainer.page.markup import (
    details,
    figure,
    grid,
    missing,
    paragraph,
    section,
    table,
    text,
)
from onegraph.trainer.page.run_folder import EpochRecord, PhaseRecord
from onegraph.trainer.report import CALL_COLUMNS, call_rows, stage_names

#: Rows of action values that the page lists.
MOST_STATES = 100


def command(*words: object) -> str:
    """A command line, quoted so that it can be pasted."""
    return shlex.join(str(word) for word in words)


def _config_of(facts: Facts) -> tuple[str, str]:
    return "--config", str(facts.run.config_path)


def duration(microseconds: float) -> str:
    """Three figures at least, in the unit that suits."""
    if microseconds >= 1e4:
        return f"{microseconds / 1e3:,.1f} ms"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds:.1f} µs"


def number(value: float | None, form: str) -> str:
    """A figure, or a dash where it was not finite or not recorded."""
    return "–" if value is None else format(value, form)


# ---------------------------------------------------------------- step time by stage


def step_time(facts: Facts) -> str:
    """Median step time by stage, with ratios."""
    title = "Step time by stage"
    times = facts.times
    if isinstance(times, Missing):
        return section("stages", title, missing("The stages were not timed", times.reason))
    labels = [row.label for row in times.entries]
    chart = Chart("step-times", title, "microseconds a learning step", "", rows=len(labels)).bars(
        labels,
        [row.us.median for row in times.entries],
        [(row.us.low, row.us.high) for row in times.entries],
        [f"{row.speed_up.median:.2f}×" for row in times.entries],
    )
    rows = [
        (
            label,
            f"{row.us.median:,.1f}",
            f"{row.us.low:,.1f}",
            f"{row.us.high:,.1f}",
            f"{row.speed_up.median:.2f}×",
            sum(row.calls.values()),
            row.nodes,
        )
        for label, row in zip(labels, times.entries, strict=True)
    ]
    best = max(times.entries, key=lambda row: row.speed_up.median)
    if facts.times_from is not None:
        how, source = "From the benchmark in the run folder", str(facts.times_from)
    else:
        how = "Measured briefly for this page, the stages in turn"
        source = command("onegraph", "report", facts.run.path, "--stages-bench")
    where = f"{times.subject}; {times.device}"
    return section(
        "stages",
        title,
        paragraph(
            f"{best.label} is the fastest: {duration(best.us.median)} a step,"
            f" {best.speed_up.median:.2f}× as fast as {labels[0]}"
            f" ({duration(times.entries[0].us.median)})."
        ),
        figure(
            "figure-step-times",
            "Median microseconds a learning step",
            chart.svg(),
            f"Bars: median; lines: 10th to 90th percentile; figures: speed-up over {labels[0]}."
            f" {where}. {how}:",
            source,
        ),
        table(("stages", "median µs", "10% µs", "90% µs", "speed-up", "calls", "nodes"), rows),
    )


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
        [e for e, _ in timed], _phase_parts([p for _, p in timed])
    )
    total = sum(ms or 0.0 for ms in last.mean.values())
    where = "the run's device"
    rows = [
        (
            name,
            number(last.last.get(name), ".4f"),
            number(ms, ".4f"),
            f"{(ms or 0.0) / total:.1%}" if total else "–",
            number(last.host.get(name), ".4f"),
        )
        for name, ms in last.mean.items()
    ]
    closing = (
        "all phases",
        number(sum(ms or 0.0 for ms in last.last.values()), ".4f"),
        number(total, ".4f"),
        "100.0%" if total else "–",
        number(sum(ms or 0.0 for ms in last.host.values()) if last.host else None, ".4f"),
    )
    return section(
        "phases",
        title,
        f'<p class="diagnosis">{text(_sentence(last.diagnosis))}</p>',
        paragraph(_step_walls(record, last)),
        figure(
            "figure-phases",
            "Phases of a learning step, by epoch",
            chart.svg(),
            f"Mean of the timed steps of each epoch, on {record.device or where}. From",
            str(facts.run.path / "metrics.jsonl"),
        ),
        f"<h3>Epoch {epoch}</h3>",
        table(
            (
                "phase",
                "last step, ms",
                f"mean of {last.timed_steps}, ms",
                "share",
                "host at work, ms",
            ),
            [*rows, closing],
        ),
    )


def _sentence(diagnosis: str) -> str:
    return f"{diagnosis[:1].upper()}{diagnosis[1:]}."


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


def _phase_parts(timed: Sequence[PhaseRecord]) -> list[tuple[str, list[float]]]:
    """The longest phases in the step's order, and what is left of each epoch as `other`."""
    names = list(dict.fromkeys(name for p in timed for name in p.mean))
    values = {name: [p.mean.get(name) or 0.0 for p in timed] for name in names}
    kept = set(sorted(names, key=lambda n: -sum(values[n]))[: COLOURS - 1])
    parts = [(name, values[name]) for name in names if name in kept]
    rest = [values[name] for name in names if name not in kept]
    if rest:
        parts.append((f"other ({len(rest)})", [sum(column) for column in zip(*rest, strict=True)]))
    return parts


# ---------------------------------------------------------------- device calls


def calls(facts: Facts) -> str:
    """Device calls of a learning step by stage."""
    title = "Device calls by stage"
    if isinstance(facts.calls, Missing):
        return section("calls", title, missing("The programs can't be made", facts.calls.reason))
    labels = [f"{c.label} {c.name}" for c in facts.calls]
    counted = [call_rows(c.calls) for c in facts.calls]
    used = [i for i in range(len(CALL_COLUMNS)) if any(row[i] for row in counted)]
    columns = [list(CALL_COLUMNS)[i] for i in used]
    chart = Chart("step-calls", title, "calls a learning step", "", rows=len(labels)).stacked_rows(
        labels, [(c, [row[i] for row in counted]) for c, i in zip(columns, used, strict=True)]
    )
    first, last = sum(counted[0]), sum(counted[-1])
    rows = [
        (label, *(row[i] for i in used), sum(row), c.nodes)
        for label, row, c in zip(labels, counted, facts.calls, strict=True)
    ]
    return section(
        "calls",
        title,
        paragraph(
            f"A learning step in steady state makes {first} device calls at stage 0 and {last} at"
            f" {labels[-1]}."
        ),
        figure(
            "figure-calls",
            "Device calls of one learning step",
            chart.svg(),
            "As the programs state them; the ledger holds each step to it. A program in full:",
            command("onegraph", "stages", "show", "0", *_config_of(facts)),
        ),
        table(("stages", *columns, "all calls", "graph nodes"), rows),
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
        what = (
            "Sharpe ratio of the greedy policy on the validation window."
            if facts.run.config.env.kind == "market"
            else "Largest error of the action values, negated."
        )
        figures.append(curve("score", "score", "Score", what, "score", log=False))
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
            f" {last.nonfinite_td} TD errors were not finite, and {last.invalid_rows} drawn rows"
            " were not valid."
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
        reason = f"{facts.run.config.env.kind} has neither a test window nor exact action values"
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
    if isinstance(facts.clusters, Missing):
        return section("graph", title, missing("The graph can't be drawn", facts.clusters.reason))
    clusters = facts.clusters
    total = sum(len(c.nodes) for c in clusters)
    graphs = sum(c.graphed for c in clusters)
    words = (
        f"At stages {stage_names(facts.stages)}, a learning step is {total} work nodes in"
        f" {len(clusters)} clusters, {graphs} of them graphs."
    )
    if facts.stages >= {6}:
        words += " One parent graph holds them all, and the host launches it once."
    rows = [
        (c.name, len(c.nodes), f"{len(c.nodes) / total:.0%}" if total else "–", _kernels(c))
        for c in clusters
    ]
    source = command(
        "onegraph", "stages", "show", format_set(facts.stages), *_config_of(facts)
    )  # fmt: skip
    body = [
        paragraph(words),
        _drawing("figure-graph", "From the program", clusters, "Read downwards. From", source),
        table(("child", "nodes", "share", "kernels"), rows, prose=3),
    ]
    if isinstance(facts.driver, Missing):
        body.append(missing("The driver's own graph is not shown", facts.driver.reason))
    else:
        nodes = sum(len(c.nodes) for c in facts.driver.clusters)
        caption = (
            f"As the driver holds it: {nodes} work nodes, where the program states {total}; a"
            " matmul may be more than one node."
        )
        body.append(
            _drawing("figure-driver", "From the driver", facts.driver.clusters, caption, "")
        )
        body.append(details("The driver's DOT, for Graphviz", facts.driver.dot))
    return section("graph", title, *body)


def _kernels(cluster: Cluster) -> str:
    return ", ".join(node.label for node in cluster.nodes)


def _drawing(name: str, title: str, clusters: Sequence[Cluster], caption: str, source: str) -> str:
    key = "".join(
        f'<li><span style="background:var(--{role})"></span>{text(what)}</li>'
        for role, what in (
            ("node", "kernel"),
            ("matmul", "matmul"),
            ("other", "copy, memset, host"),
        )
    )
    drawn = "".join(
        f'<div class="{kind}">{draw(clusters, columns, width, title)}</div>'
        for kind, columns, width in (("wide", 4, 920), ("narrow", 2, 380))
    )
    return f'<ul class="key">{key}</ul>' + figure(
        name, title, f'<div class="graph">{drawn}</div>', caption, source
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
