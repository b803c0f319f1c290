"""``onegraph report``: one HTML page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from onegraph.stages.page.charts import require_plots
from onegraph.stages.page.markup import Missing
from onegraph.trainer.cli.console import notes
from onegraph.trainer.cli.train import DeviceOption
from onegraph.trainer.page.document import render
from onegraph.trainer.page.facts import DeviceKind, gather
from onegraph.trainer.page.run_folder import read_run


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, as `onegraph train` makes it.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page; default: report.html in the run folder.")
    ] = None,
    stages_bench: Annotated[
        bool,
        typer.Option(
            help="Time the stages briefly where the run folder has no bench.json.",
            show_default=True,
        ),
    ] = True,
    device: DeviceOption = None,
) -> None:
    """Write one self-contained HTML page about a run."""
    kind = next((known for known in get_args(DeviceKind) if known == device), None)
    if kind != device:
        raise typer.BadParameter(
            f"{device!r} is none of {', '.join(get_args(DeviceKind))}", param_hint="--device"
        )
    require_plots()
    facts = gather(read_run(run), kind, measure=stages_bench)
    page = render(facts)
    path = out if out is not None else run / "report.html"
    path.write_text(page, encoding="utf-8")
    for name in ("times", "calls", "policy"):
        if isinstance(piece := getattr(facts, name), Missing):
            notes().print(f"{name}: not on the page: {piece.reason}", markup=False)
    print(f"{path} ({len(page.encode()) / 1024:,.0f} KiB)")
