"""``onegraph walkforward``: windows that walk forward by months, trained with several seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from onegraph.stages.flags import choose_stages
from onegraph.stages.page.charts import PlotUnavailableError, require_plots
from onegraph.trainer.cli.console import notes, results, table
from onegraph.trainer.cli.errors import EXPECTED
from onegraph.trainer.cli.train import (
    ConfigOption,
    DeviceOption,
    SetOption,
    StagesOption,
    read_config,
    refuse_used_folder,
    stop_on_signal,
)
from onegraph.trainer.config import parse_override
from onegraph.trainer.progress import ProgressDisplay
from onegraph.trainer.walkforward.errors import InterruptedWalkError, WalkforwardError
from onegraph.trainer.walkforward.plan import PLAN, Plan, RunId, load_plan, make_plan, save_plan
from onegraph.trainer.walkforward.result import POLICY, RunResult, read_result
from onegraph.trainer.walkforward.schedule import in_processes, one_by_one
from onegraph.trainer.walkforward.summary import (
    Summary,
    pooling_words,
    summarise,
    write_summary,
)
from onegraph.trainer.walkforward.tables import (
    HEADINGS,
    PLAN_HEADINGS,
    plan_rows,
    pooled_rows,
    test_label,
    window_rows,
)

#: The page, in the walk-forward's folder.
PAGE = "report.html"


def walkforward(
    config: ConfigOption = None,
    overrides: SetOption = None,
    stages: StagesOption = None,
    device: DeviceOption = None,
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", help="Folder of the walk-forward; default: the config's."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            help="A walk-forward's folder to go on with. Finished runs stay as they are; --set can"
            " change walkforward.seeds, workers and gpus.",
        ),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write report.html (needs matplotlib).")
    ] = True,
) -> None:
    """Train every window with every seed, and judge each on its test window alone.

    The config's walkforward.* fields say how many months, which seeds, and how many runs at a time.
    Ctrl-C saves the state of what runs and exits with 130; --resume goes on from it.
    """
    if report:
        _require_plots()
    if resume is not None:
        root = resume
        plan = _resumed(resume, config, overrides, stages, device, run_dir)
    else:
        settings = read_config(config, overrides, device)
        choice = choose_stages(stages, settings.stages)
        settings = settings.model_copy(update={"stages": choice.text})
        root = run_dir or Path(settings.run_dir)
        if (root / PLAN).exists():
            raise WalkforwardError(
                f"{root} holds a walk-forward already; go on with it (--resume {root}), or name"
                " another folder (--run-dir)"
            )
        refuse_used_folder(root)
        plan = make_plan(settings)
    found = {run: read_result(root, run, plan.bars_digest) for run in plan.runs}
    save_plan(plan, root)
    print_plan(plan, root)
    missing = [run for run, result in found.items() if result is None]
    if failures := run_missing(plan, root, missing):
        for run, cause in failures.items():
            notes().print(f"failed: {run}: {cause}", markup=False)
        first, cause = next(iter(failures.items()))
        raise WalkforwardError(
            f"{len(failures)} of {len(plan.runs)} runs failed, the first of them {first} ({cause});"
            f" there is no table without them: go on with --resume {root}, which does what is"
            " missing"
        )
    summary = summarise(plan, {run: _finished(root, run, plan) for run in plan.runs})
    print_summary(summary)
    print(f"figures: {write_summary(summary, root)}")
    if report:
        from onegraph.trainer.page.walkforward import render

        page = render(summary, root)
        path = root / PAGE
        path.write_text(page, encoding="utf-8")
        print(f"report: {path} ({len(page.encode()) / 1024:,.0f} KiB)")


def _require_plots() -> None:
    try:
        require_plots()
    except PlotUnavailableError as error:
        raise PlotUnavailableError(f"{error}, or leave the page out (--no-report)") from None


def _resumed(
    root: Path,
    config: str | None,
    overrides: list[str] | None,
    stages: str | None,
    device: str | None,
    run_dir: Path | None,
) -> Plan:
    """The plan to go on with."""
    given = {"--config": config, "--stages": stages, "--device": device, "--run-dir": run_dir}
    for option, value in given.items():
        if value is not None:
            raise WalkforwardError(
                f"{option} {value} with --resume {root}: a walk-forward keeps its own; leave it out"
            )
    return load_plan(root, dict(parse_override(text) for text in overrides or ()))


def _finished(root: Path, run: RunId, plan: Plan) -> RunResult:
    result = read_result(root, run, plan.bars_digest)
    if result is None:
        raise WalkforwardError(f"{run.folder(root)}: its result went away while this ran")
    return result


# ---------------------------------------------------------------- running


class Watch:
    """The one bar, over windows x seeds, and a line for each run that ends."""

    def __init__(self, display: ProgressDisplay, plan: Plan, root: Path, done: int) -> None:
        self.display, self.plan, self.root, self.done = display, plan, root, done
        self.failures: dict[RunId, str] = {}
        self._shares: dict[RunId, float] = {}

    def _show(self, note: str) -> None:
        self.display.update(self.done + sum(self._shares.values()), note)

    def progress(self, run: RunId, done: float, note: str) -> None:
        """How far a run is."""
        self._shares[run] = done
        self._show(f"{run}: {note}")

    def finished(self, run: RunId) -> None:
        """A run's result, in a line."""
        self._end(run)
        record = _finished(self.root, run, self.plan).record
        test = record.figures()[POLICY]
        self.display.say(
            f"{run}: epoch {record.checkpoint.epoch} of {record.epochs} was the best on validation,"
            f" test return {test.total_return:+.2%}, Sharpe {test.sharpe:.2f},"
            f" {record.seconds:.1f} s"
        )

    def failed(self, run: RunId, cause: str) -> None:
        """A run that can't be done."""
        self._end(run)
        self.failures[run] = cause
        self.display.say(f"{run} failed: {cause}")

    def _end(self, run: RunId) -> None:
        self._shares.pop(run, None)
        self.done += 1
        self._show(f"{run}: ended")


def run_missing(plan: Plan, root: Path, missing: list[RunId]) -> dict[RunId, str]:
    """Run what is missing; gives the causes of what failed.

    Raises:
        InterruptedWalkError: Ctrl-C or SIGTERM came, and every state is saved.
    """
    if not missing:
        return {}
    _walk, total = plan.config.walkforward, len(plan.runs)
    with stop_on_signal() as asked, ProgressDisplay(total, "walk-forward") as display:
        watch = Watch(display, plan, root, total - len(missing))
        whole = _run(plan, root, missing, watch, asked)
    if not whole:
        done = sum(read_result(root, run, plan.bars_digest) is not None for run in plan.runs)
        raise InterruptedWalkError(root, done, total)
    return watch.failures


def _run(
    plan: Plan, root: Path, missing: list[RunId], watch: Watch, stop: Callable[[], bool]
) -> bool:
    walk = plan.config.walkforward
    if walk.workers == 1 and not walk.gpus:
        return one_by_one(plan, root, missing, watch, stop, EXPECTED)
    workers = min(walk.workers, len(missing))
    return in_processes(root, missing, workers, walk.gpus, watch, stop)


# ---------------------------------------------------------------- tables


def print_plan(plan: Plan, root: Path) -> None:
    """Every window with its dates, and what is about to run."""
    rows = table(f"Windows over {plan.bars.symbol}, {len(plan.bars):,} bars", *PLAN_HEADINGS)
    for row in plan_rows(plan):
        rows.add_row(*row)
    results().print(rows)
    walk = plan.config.walkforward
    notes().print(
        f"{len(plan.windows)} windows x {len(plan.seeds)} seeds = {len(plan.runs)} runs, stages"
        f" {plan.config.stages}, {walk.workers} at a time, folder {root}"
    )
    if len(plan.seeds) == 1:
        notes().print(
            "one seed has no spread, and does not tell skill from luck; set walkforward.seeds to 3"
            " or more"
        )


def print_summary(summary: Summary) -> None:
    """A table of the windows, one of the chained tests, and how they were chained."""
    plan = summary.plan
    rows = table("Tests by window", "", *HEADINGS)
    for number in range(len(plan.windows)):
        rows.add_row(f"window {number}, {test_label(plan, number)}", *[""] * len(HEADINGS))
        for row in window_rows(summary, number):
            rows.add_row(f"  {row[0]}", *row[1:])
        rows.add_section()
    results().print(rows)
    pooled = table("All tests, chained", "", *HEADINGS)
    for row in pooled_rows(summary):
        pooled.add_row(*row)
    results().print(pooled)
    for line in pooling_words(summary):
        results().print(line)
