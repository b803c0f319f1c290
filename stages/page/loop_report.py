"""One self-contained HTML page about any loop: what its stages promise, and what they gain."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onegraph.stages.bench import BenchResult
from onegraph.stages.page.charts import Chart, require_plots
from onegraph.stages.page.document import PageSection, Tile, document
from onegraph.stages.page.loop_facts import TIMED_STEPS, LoopFacts, LoopReportError, gather_loop
from onegraph.stages.page.markup import (
    Missing,
    command,
    details,
    figure,
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
    work_nodes,
)
from onegraph.stages.phase_report import PhaseReport
from onegraph.stages.registry import StageSet, stage_names
from onegraph.stages.subject import Subject
from onegraph.stages.verification import Verification
from onegraph.stages.verify import OpenDevice
from onegraph.stages.verify_table import (
    COLUMNS,
    call_cells,
    outcome_cells,
    verdict,
    verify_lines,
)


def loop_report(
    subject: Subject,
    open_device: OpenDevice,
    path: Path | str,
    *,
    sets: Sequence[StageSet] | None = None,
    steps: int = 100,
    rounds: int = 20,
    program: str | None = None,
    verified: Verification | None = None,
    timed: BenchResult | None = None,
    made_by: Sequence[str] | None = None,
) -> LoopFacts:
    """Verify a loop, time it, and write the page about it.

    A loop that does not verify gets its page all the same: it says so first. Sets that can't be
    run are not timed.

    Args:
        subject: the loop.
        open_device: gives a fresh device each time it is called, and the same kind.
        path: the file to write.
        sets: default: stage 0, then with each further stage of the subject.
        steps: that the verification runs at each set.
        rounds: of the benchmark.
        program: whose step is timed and drawn; default: that of `timed`, else the one that a step
            runs first.
        verified: the loop's verification, where there is one already; `sets` and `steps` are its.
        timed: the loop's benchmark, where there is one already; `rounds` are its.
        made_by: the command to print as the page's; default: this process's own.

    Raises:
        PlotUnavailableError: matplotlib is not installed.
        LoopReportError: no folder to write to, or arguments that do not go together.
        VerifyError, StageSetError, BenchError: as `verify` and `bench`.
        Any error of `open_device`.
    """
    require_plots()
    path = Path(path)
    if not path.resolve().parent.is_dir() or path.is_dir():
        raise LoopReportError(
            f"{path}: the page can't be written there; name a file in a folder that exists"
        )
    facts = gather_loop(
        subject,
        open_device,
        sets=sets,
        steps=steps,
        rounds=rounds,
        program=program,
        verified=verified,
        timed=timed,
    )
    path.write_text(render_loop(facts, made_by or sys.orig_argv), encoding="utf-8")
    return facts


def render_loop(facts: LoopFacts, made_by: Sequence[str]) -> str:
    """The page; `made_by` is the command that it prints as its own."""
    checked = facts.verification
    return document(
        title=facts.subject.name,
        about=f"{checked.device} ({checked.device_name}), program {facts.program or 'none'}",
        note="" if checked.ok else list(verify_lines(checked))[-1],
        tiles=_tiles(facts),
        sections=[
            PageSection("verify", "Verified", _verified(facts)),
            PageSection("stages", "Step time", _step_time(facts)),
            PageSection("calls", "Calls", _calls(facts)),
            PageSection("phases", "Phases", _phases(facts)),
            PageSection("graph", "Graph", _graph(facts)),
            PageSection("commands", "Commands", _commands(facts, made_by)),
        ],
        footer="Made by <code>onegraph.stages.page.loop_report</code>.",
    )


def _tiles(facts: LoopFacts) -> list[Tile]:
    checked = facts.verification
    failed = sum(not one.ok for one in checked.sets)
    tiles = [
        Tile(
            "verified" if checked.ok else "FAILED",
            f"{len(checked.sets) - failed} of {len(checked.sets)}",
            f"sets of stages, {checked.steps} steps each",
        )
    ]
    if isinstance(facts.times, BenchResult):
        first, last = facts.times.entries[0], facts.times.entries[-1]
        ratio = f"{last.speed_up(first).median:.2f}×"
        tiles.append(Tile("speed-up", ratio, f"{last.label} over {first.label}"))
    if rows := _plain_calls(facts):
        before, after = (str(sum(row.calls.values())) for row in (rows[0], rows[-1]))
        tiles.append(Tile("device calls a step", after, f"{rows[0].label}: {before}"))
    if not isinstance(facts.clusters, Missing):
        nodes, clusters = work_nodes(facts.clusters), len(facts.clusters)
        tiles.append(Tile("work nodes a step", str(nodes), f"in {clusters} clusters"))
    if timed := _timed(facts):
        label, report = timed[-1]
        tiles.append(Tile("device at work", f"{report.busy_share:.0%}", f"of a step at {label}"))
    return tiles


# ---------------------------------------------------------------- verified


def _verified(facts: LoopFacts) -> str:
    checked = facts.verification
    lines = list(verify_lines(checked))
    listed = "\n".join(lines)
    rows = [
        (label, *outcome_cells(one)[1:], verdict(one))
        for label, one in zip(facts.labels, checked.sets, strict=True)
    ]
    return section(
        "verify",
        "What the stages promise",
        f'<p class="{"diagnosis" if checked.ok else "missing"}">{text(sentence(lines[-1]))}</p>',
        paragraph(
            f"{checked.steps} steps at each set, every other one timed: choices and parameters"
            f" against those of {facts.labels[0]} and of the set before, bit for bit, and each"
            " step's device calls against the budgets."
        ),
        table(("stages", "choices", "from first", "from previous", "verdict"), rows, left=5),
        f'<pre class="command">{text(listed)}</pre>',
    )


# ---------------------------------------------------------------- step time


def _step_time(facts: LoopFacts) -> str:
    title, times = "Step time by stage", facts.times
    if isinstance(times, Missing):
        return section("stages", title, missing("The stages were not timed", times.reason))
    base = times.entries[0]
    rows = [
        StepTime(e.label, e.time, e.speed_up(base), sum(e.calls.values()), e.nodes)
        for e in times.entries
    ]
    shown = {row.label for row in rows}
    absent = [label for label in facts.labels if label not in shown]
    wrong = [
        label
        for label, one in zip(facts.labels, facts.verification.sets, strict=True)
        if label in shown and not one.ok
    ]
    notes = []
    if absent:
        notes.append(missing("Not timed", "; ".join(absent)))
    if wrong:
        notes.append(missing("Timed although they failed the verification", f"{'; '.join(wrong)}"))
    how = (
        f"A step of {times.program} on {times.device}, {times.rounds} rounds of all sets in turn;"
        " a ratio is taken within a round."
    )
    return section("stages", title, *notes, step_times(rows, "a step", how, ""))


# ---------------------------------------------------------------- device calls


def _plain_calls(facts: LoopFacts) -> list[StepCalls]:
    """The timed program's calls at each set that runs, as the ledger counted them."""
    return [
        StepCalls(one.label, calls.plain, sum(calls.nodes.values()))
        for one in facts.sets
        if (calls := one.result.programs.get(facts.program)) is not None
    ]


def _calls(facts: LoopFacts) -> str:
    title, rows = "Device calls against the budgets", _plain_calls(facts)
    if not rows:
        return section("calls", title, missing("No call was counted", "no set of stages runs"))
    first, last = rows[0], rows[-1]
    cells = [
        (one.label, name, *call_cells(calls))
        for one in facts.sets
        for name, calls in one.result.programs.items()
    ]
    return section(
        "calls",
        title,
        paragraph(
            f"A step of {facts.program} in steady state makes {sum(first.calls.values())} device"
            f" calls at {first.label} and {sum(last.calls.values())} at {last.label}."
        ),
        calls_figure(rows, "step", "A plain step of each set, as the ledger counted it."),
        paragraph(
            "Calls of a plain step, as in 3/0: three made where the budget allows none. A figure"
            " alone has no limit. Events are those of a timed step."
        ),
        table(("stages", "program", *COLUMNS, "nodes"), cells, left=2),
    )


# ---------------------------------------------------------------- phases


def _timed(facts: LoopFacts) -> list[tuple[str, PhaseReport]]:
    return [(one.label, one.phases) for one in facts.sets if one.phases is not None]


def _phases(facts: LoopFacts) -> str:
    title, timed = "Time by phase", _timed(facts)
    if not timed:
        return section(
            "phases",
            title,
            missing("No phase was timed", "no set has phase-events, stage 3; turn it on"),
        )
    label, last = timed[-1]
    reports = [report for _, report in timed]
    chart = Chart("phase-times", title, "ms a step", "", rows=len(timed)).stacked_rows(
        [name for name, _ in timed], phase_parts([report.mean for report in reports])
    )
    names = list(dict.fromkeys(name for report in reports for name in report.mean))
    by_phase = [
        (name, *(number(report.mean.get(name), ".4f") for report in reports)) for name in names
    ]
    meanings = [
        (
            name,
            f"{report.step_ms:.3f}",
            f"{report.phases_ms:.3f}",
            f"{report.busy_share:.0%}",
            sentence(report.diagnosis),
        )
        for name, report in timed
    ]
    return section(
        "phases",
        title,
        diagnosis(f"{label}: {last.diagnosis}."),
        figure(
            "figure-phases",
            "Phases of a step, by stage",
            chart.svg(),
            f"Mean of {last.timed_steps} timed steps of {facts.program} at each set that times its"
            " phases, each step alone on an idle device.",
        ),
        "<h3>What the times mean</h3>",
        table(
            ("stages", "last step alone, ms", "its phases, ms", "device at work", "diagnosis"),
            meanings,
            prose=4,
        ),
        "<h3>Mean of each phase, ms</h3>",
        table(("phase", *(name for name, _ in timed)), by_phase),
        f"<h3>{text(label)}</h3>",
        phase_table(last.last, last.mean, last.host, last.timed_steps),
    )


# ---------------------------------------------------------------- the graph


def _graph(facts: LoopFacts) -> str:
    title = "The step as a graph"
    if isinstance(facts.clusters, Missing):
        return section("graph", title, missing("The graph can't be drawn", facts.clusters.reason))
    last = facts.sets[-1]
    words = graph_words(
        f"a step of {facts.program}", stage_names(last.stages, facts.subject.known), last.program
    )
    return section(
        "graph",
        title,
        paragraph(words),
        graph_figures(facts.clusters, facts.driver, "Read downwards."),
        *(
            details(f"The program at {one.label}", one.program.describe())
            for one in (facts.sets[0], last)[-len(facts.sets) :]
        ),
    )


# ---------------------------------------------------------------- commands


def _commands(facts: LoopFacts, made_by: Sequence[str]) -> str:
    checked = facts.verification
    where = f"{checked.device} ({checked.device_name})"
    rows = [
        ("subject", facts.subject.name),
        ("device", where),
        ("machine", f"{platform.platform()}, Python {platform.python_version()}, NumPy"
         f" {np.__version__}"),
        ("stages", stage_names(frozenset(s.number for s in facts.subject.known),
         facts.subject.known)),
        ("sets", "; ".join(one.label for one in checked.sets)),
        ("verified", f"{checked.steps} steps at each set"),
        ("timed", f"program {facts.program}, {facts.rounds} rounds; phases of {TIMED_STEPS} steps"),
    ]  # fmt: skip
    return section(
        "commands",
        "Commands",
        "<h3>This page</h3>",
        f'<pre class="command">{text(command(*made_by))}</pre>',
        "<h3>What was asked for</h3>",
        table(("what", "value"), rows, left=2, prose=1),
    )
