"""The commands of the program."""

from __future__ import annotations

import typer

from onegraph.trainer.cli import (
    bench,
    data,
    demo,
    export,
    guard,
    prove,
    report,
    stages,
    train,
    verify,
    walkforward,
)
from onegraph.trainer.cli.errors import reported

app = typer.Typer(
    name="onegraph",
    help="Train a DQN, and migrate its step, stage by stage, to one graph launch.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("train", epilog=train.FIELDS_EPILOG)(reported(train.train))
app.command("evaluate")(reported(train.evaluate))
app.command("demo")(reported(demo.demo))
app.command("bench")(reported(bench.run_bench))
app.command("config")(reported(train.show_config))
app.command("verify")(reported(verify.verify_stages))
app.command("prove")(reported(prove.prove))
app.command("walkforward")(reported(walkforward.walkforward))
app.command("export")(reported(export.export))
app.command("report")(reported(report.report))
app.command("guard", context_settings=guard.PASSED_ON, add_help_option=False)(guard.guard)
app.add_typer(stages.app, name="stages")
app.add_typer(data.app, name="data")


def run(argv: list[str]) -> int:
    """Run `argv`; gives the exit code."""
    try:
        app(args=argv, prog_name="onegraph")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    return 0
