"""`Verification` as a table and a list of findings, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from onegraph.stages.difference import Difference
from onegraph.stages.verification import ProgramCalls, SetResult, Verification

#: Columns of device calls, and the ledger kinds that each sums.
COLUMNS = {
    "launch": ("launch", "matmul"),
    "graph": ("graph_launch",),
    "HtoD": ("htod",),
    "DtoH": ("dtoh",),
    "DtoD": ("dtod",),
    "memset": ("memset", "memset_sync"),
    "alloc": ("alloc", "free"),
    "sync": ("sync",),
    "host": ("host",),
    "event": ("event_record", "event_set"),
}


def verify_table(result: Verification) -> Table:
    """A row for each program of each set. ``3/0`` is three calls where the budget allows none."""
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=f"{result.subject} on {result.device_name}: {result.steps} steps at each set;"
        " device calls of a plain step / budget, events of a timed one",
    )
    for column in ("stages", "choices", "from 0", "from prev.", "program"):
        table.add_column(column, no_wrap=True)
    for column in (*COLUMNS, "nodes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for one in result.sets:
        for row in _rows(one):
            table.add_row(*row)
    return table


def _rows(one: SetResult) -> Iterator[tuple[str, ...]]:
    head = outcome_cells(one)
    if not one.programs:
        yield (*head, "", *("" for _ in COLUMNS), "", verdict(one))
    for index, (name, calls) in enumerate(one.programs.items()):
        start, end = (head, verdict(one)) if not index else (("", "", "", ""), "")
        yield (*start, name, *call_cells(calls), end)


def outcome_cells(one: SetResult) -> tuple[str, str, str, str]:
    """The set, its choices' digest, and how its parameters differ from the first and the last."""
    first, previous = (_difference(d, one) for d in (one.from_first, one.from_previous))
    return one.label, one.choices[:8], first, previous


def verdict(one: SetResult) -> str:
    """``ok``, or which checks failed."""
    failed = ", ".join(dict.fromkeys(finding.check for finding in one.findings))
    return "ok" if one.ok else f"FAILED: {failed}"


def call_cells(calls: ProgramCalls) -> tuple[str, ...]:
    """A program's calls in `COLUMNS`, each beside its budget where it has one, and its nodes."""
    cells = [_cell(calls, kinds) for kinds in COLUMNS.values()]
    return (*cells, str(sum(calls.nodes.values()) or ""))


def _difference(difference: Difference | None, one: SetResult) -> str:
    if difference is None:
        return "-"
    if difference.equal:
        return "equal"
    accepted = not one.exact and difference.within_bounds
    return f"{'within ' if accepted else ''}{difference.relative:.0e}"


def _cell(calls: ProgramCalls, kinds: tuple[str, ...]) -> str:
    events = "event_record" in kinds
    made = calls.timed if events and calls.timed is not None else calls.plain
    limits = calls.timed_limits if events and calls.timed is not None else calls.limits
    if events:  # one or the other kind, each with the whole allowance
        kinds = tuple(k for k in kinds if made.get(k)) or kinds[:1]
    count = sum(made.get(kind, 0) for kind in kinds)
    if all(kind in limits for kind in kinds):
        return f"{count}/{sum(limits[kind] for kind in kinds)}"
    return str(count)


def verify_lines(result: Verification) -> Iterator[str]:
    """Every finding, what CUPTI saw, and the verdict, a line each."""
    for label, finding in result.findings:
        yield f"stages {label}: {finding}"
    for one in result.sets:
        for form, driver in (("plain", one.cupti), ("timed", one.cupti_timed)):
            if driver is not None:
                names = ", ".join(f"{name} {n}" for name, n in driver.names.items())
                inside = sum(driver.kernels_inside.values())
                yield (
                    f"CUPTI, stages {one.label}, a {form} step: {names or 'no driver call'};"
                    f" kernels: {driver.kernels_outside} outside graphs, {inside} inside"
                    f" {len(driver.kernels_inside)} graphs"
                )
    yield result.cupti_note
    failed = [one.label for one in result.sets if not one.ok]
    yield (
        f"FAILED at stages {'; '.join(failed)}"
        if failed
        else f"verified: {len(result.sets)} sets of stages, each as it promises"
    )
