"""What any step's page shows: its time by stage, its calls, its phases and its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onegraph.stages.bench import Spread
from onegraph.stages.call_columns import CALL_COLUMNS, call_rows
from onegraph.stages.page.charts import COLOURS, Chart
from onegraph.stages.page.graph_drawing import Cluster, DriverGraph, draw, from_program
from onegraph.stages.page.markup import (
    Missing,
    details,
    duration,
    figure,
    missing,
    number,
    paragraph,
    table,
    text,
)
from onegraph.stages.program import GraphLaunch, StepProgram

# ---------------------------------------------------------------- step time by stage


@dataclass(frozen=True)
class StepTime:
    """A row of a benchmark.

    Attributes:
        us: microseconds a step.
        speed_up: how many times as fast as the first row.
        calls, nodes: of a step; 0 where nobody counts them.
    """

    label: str
    us: Spread
    speed_up: Spread
    calls: int
    nodes: int


def step_times(rows: Sequence[StepTime], step: str, how: str, source: str) -> str:
    """A sentence, the bars and the table of a benchmark.

    Args:
        rows: the first is what the ratios are to.
        step: what a step is called, as in ``a learning step``.
        how: what was timed and where, in sentences that lead to the source.
        source: the command or file that the times are from.
    """
    first = rows[0]
    chart = Chart(
        "step-times", "Step time by stage", f"microseconds {step}", "", rows=len(rows)
    ).bars(
        [row.label for row in rows],
        [row.us.median for row in rows],
        [(row.us.low, row.us.high) for row in rows],
        [f"{row.speed_up.median:.2f}×" for row in rows],
    )
    cells = [
        (
            row.label,
            f"{row.us.median:,.1f}",
            f"{row.us.low:,.1f}",
            f"{row.us.high:,.1f}",
            f"{row.speed_up.median:.2f}×",
            row.calls,
            row.nodes,
        )
        for row in rows
    ]
    return (
        paragraph(_fastest(rows))
        + figure(
            "figure-step-times",
            f"Median microseconds {step}",
            chart.svg(),
            f"Bars: median; lines: 10th to 90th percentile; figures: speed-up over {first.label}."
            f" {how}",
            source,
        )
        + table(("stages", "median µs", "10% µs", "90% µs", "speed-up", "calls", "nodes"), cells)
    )


def _fastest(rows: Sequence[StepTime]) -> str:
    first, best = rows[0], max(rows, key=lambda row: row.speed_up.median)
    if best is first:
        return f"Nothing is faster than {first.label}: {duration(first.us.median)} a step."
    return (
        f"{best.label} is the fastest: {duration(best.us.median)} a step,"
        f" {best.speed_up.median:.2f}× as fast as {first.label} ({duration(first.us.median)})."
    )


# ---------------------------------------------------------------- device calls


@dataclass(frozen=True)
class StepCalls:
    """Device calls of a plain step by ledger kind, and the nodes of its graphs."""

    label: str
    calls: Mapping[str, int]
    nodes: int


def used_columns(rows: Sequence[StepCalls]) -> tuple[list[str], list[list[int]]]:
    """The columns of `CALL_COLUMNS` that any row has calls in, and each row's figures in them."""
    counted = [call_rows(row.calls) for row in rows]
    used = [i for i in range(len(CALL_COLUMNS)) if any(figures[i] for figures in counted)]
    names = list(CALL_COLUMNS)
    return [names[i] for i in used], [[figures[i] for i in used] for figures in counted]


def calls_figure(rows: Sequence[StepCalls], step: str, caption: str, source: str = "") -> str:
    """Device calls of each row, stacked by column; `step` as in ``learning step``."""
    columns, counted = used_columns(rows)
    chart = Chart(
        "step-calls", "Device calls by stage", f"calls a {step}", "", rows=len(rows)
    ).stacked_rows(
        [row.label for row in rows],
        [(column, [figures[i] for figures in counted]) for i, column in enumerate(columns)],
    )
    return figure("figure-calls", f"Device calls of one {step}", chart.svg(), caption, source)


# ---------------------------------------------------------------- phases

#: A phase's milliseconds; ``None`` where a file has no finite figure.
PhaseMs = Mapping[str, float | None]


def phase_parts(timed: Sequence[PhaseMs]) -> list[tuple[str, list[float]]]:
    """For a stack: the longest phases in the step's order, and what is left of each as `other`."""
    names = list(dict.fromkeys(name for mean in timed for name in mean))
    values = {name: [mean.get(name) or 0.0 for mean in timed] for name in names}
    kept = set(sorted(names, key=lambda n: -sum(values[n]))[: COLOURS - 1])
    parts = [(name, values[name]) for name in names if name in kept]
    rest = [values[name] for name in names if name not in kept]
    if rest:
        parts.append((f"other ({len(rest)})", [sum(column) for column in zip(*rest, strict=True)]))
    return parts


def diagnosis(words: str) -> str:
    """What the phase times mean, set off from the text around it."""
    return f'<p class="diagnosis">{text(words)}</p>'


def phase_table(last: PhaseMs, mean: PhaseMs, host: PhaseMs, timed_steps: int) -> str:
    """Milliseconds by phase, and all phases together."""
    total = sum(ms or 0.0 for ms in mean.values())
    rows = [
        (
            name,
            number(last.get(name), ".4f"),
            number(ms, ".4f"),
            f"{(ms or 0.0) / total:.1%}" if total else "–",
            number(host.get(name), ".4f"),
        )
        for name, ms in mean.items()
    ]
    closing = (
        "all phases",
        number(sum(ms or 0.0 for ms in last.values()), ".4f"),
        number(total, ".4f"),
        "100.0%" if total else "–",
        number(sum(ms or 0.0 for ms in host.values()) if host else None, ".4f"),
    )
    columns = ("phase", "last step, ms", f"mean of {timed_steps}, ms", "share", "host at work, ms")
    return table(columns, [*rows, closing])


# ---------------------------------------------------------------- the graph


def graph_words(step: str, stages: str, program: StepProgram) -> str:
    """How large the step is; `step` as in ``a learning step``, `stages` in words."""
    clusters = from_program(program)
    graphs = sum(c.graphed for c in clusters)
    words = (
        f"At stages {stages}, {step} is {work_nodes(clusters)} work nodes in {len(clusters)}"
        f" clusters, {graphs} of them graphs."
    )
    ops = [op for _, op in program.ops()]
    if len(ops) == 1 and isinstance(ops[0], GraphLaunch):
        words += " One parent graph holds them all, and the host launches it once."
    return words


def work_nodes(clusters: Sequence[Cluster]) -> int:
    """Nodes of all clusters together."""
    return sum(len(c.nodes) for c in clusters)


def graph_figures(
    clusters: Sequence[Cluster], driver: DriverGraph | Missing, caption: str, source: str = ""
) -> str:
    """The step drawn from its program, a row for each cluster, and the driver's own drawing."""
    total = work_nodes(clusters)
    rows = [
        (
            c.name,
            len(c.nodes),
            f"{len(c.nodes) / total:.0%}" if total else "–",
            ", ".join(node.label for node in c.nodes),
        )
        for c in clusters
    ]
    body = _drawing("figure-graph", "From the program", clusters, caption, source)
    body += table(("child", "nodes", "share", "kernels"), rows, prose=3)
    if isinstance(driver, Missing):
        return body + missing("The driver's own graph is not shown", driver.reason)
    held = (
        f"As the driver holds it: {work_nodes(driver.clusters)} work nodes, where the program"
        f" states {total}; a matmul may be more than one node."
    )
    body += _drawing("figure-driver", "From the driver", driver.clusters, held, "")
    return body + details("The driver's DOT, for Graphviz", driver.dot)


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
