"""``onegraph verify``: run each set of stages, and hold it to all that it promises."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from onegraph.kernels.device import open_device
from onegraph.stages.flags import parse_stages
from onegraph.stages.verify import VerifyError, verify
from onegraph.stages.verify_table import verify_lines, verify_table
from onegraph.trainer.cli.console import notes, results
from onegraph.trainer.cli.train import ConfigOption, DeviceOption, SetOption, read_config
from onegraph.trainer.subject import TrainerSubject

#: Exit code of a verification that found something.
FAILED = 1


def verify_stages(
    config: ConfigOption = "demo",
    overrides: SetOption = None,
    stages: Annotated[
        list[str] | None,
        typer.Option(
            "--stages",
            help="A set to verify: n for 0 to n, a list, all, none; again for each further set."
            " Default: 0, 0-1, … up to all. Stage 0 always runs: the others are compared with it.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="Steps at each set.")] = 100,
    device: DeviceOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON (docs/verify.md).")
    ] = False,
) -> None:
    """Check that the stages keep every bit and their budgets; exit 1 if one of them does not.

    At each set of stages: sampled indices and parameters must be stage 0's, bit for bit, and the
    device calls of a step in steady state must be within budget, as the program states them, as
    the ledger counts them and, on a GPU, as CUPTI does.
    """
    settings = read_config(config, overrides, device)
    sets = None if stages is None else [parse_stages(text) for text in stages]
    console = notes()
    try:
        result = verify(
            TrainerSubject(settings),
            lambda: open_device(settings.device),
            sets,
            steps=steps,
            say=console.print,
        )
    except VerifyError as error:
        raise typer.BadParameter(str(error), param_hint="--steps") from error
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        results().print(verify_table(result))
        for line in verify_lines(result):
            print(line)
    if not result.ok:
        raise typer.Exit(FAILED)
