"""`BenchResult` as a table, for people."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from onegraph.stages.bench import BenchResult, Spread


def figures(value: Spread, digits: int) -> tuple[str, str]:
    """The median, and the 10th and 90th percentiles."""
    return f"{value.median:,.{digits}f}", f"{value.low:,.{digits}f}-{value.high:,.{digits}f}"


def times_table(result: BenchResult) -> Table:
    """A line a candidate: times, ratio to the first, nodes, device calls."""
    rows = Table(
        title=f"{result.subject}; {result.device}; {result.rounds} rounds, 10th to 90th percentile"
    )
    rows.add_column("step", no_wrap=True)
    for column in ("median us", "spread", "speed-up", "spread", "nodes", "device calls"):
        rows.add_column(column, justify="right", overflow="fold")
    base = result.entries[0]
    for entry in result.entries:
        speed_up = figures(entry.speed_up(base), 2)
        rows.add_row(
            entry.label,
            *figures(entry.time, 1),
            f"{speed_up[0]}x",
            speed_up[1],
            str(entry.nodes or ""),
            calls_words(entry.calls),
        )
    return rows


def calls_words(calls: Mapping[str, int]) -> str:
    """Calls of a step in few words: the launches, and everything else together."""
    if not calls:
        return ""
    launches = calls.get("launch", 0) + calls.get("matmul", 0)
    graphs = calls.get("graph_launch", 0)
    rest = sum(calls.values()) - launches - graphs
    parts = {"launches": launches, "graph launches": graphs, "others": rest}
    return ", ".join(f"{what} {n}" for what, n in parts.items() if n)
