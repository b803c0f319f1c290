"""``onegraph verify``: run each set of stages, and hold it to all that it promises."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from onegraph.kernels.device import open_device
from onegraph.stages.flags import choose_stages
from onegraph.stages.registry import StageSet
from onegraph.stages.verify import VerifyError, verify
from onegraph.stages.verify_table import verify_lines, verify_table
from onegraph.trainer.cli.console import notes, results
from onegraph.trainer.cli.train import ConfigOption, DeviceOption, SetOption, read_config
from onegraph.trainer.staged import require_possible
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
    """Check that the stages keep their numbers and budgets; exit 1 if one of them does not.

    At each set of stages: sampled indices and parameters must be stage 0's, bit for bit (with stage
    7: the same indices, and parameters that agree to rounding and come again bit for bit), and the
    device calls of a step in steady state must be within budget, as the program states them, as
    the ledger counts them and, on a GPU, as CUPTI does.
    """
    settings = read_config(config, overrides, device)
    console = notes()
    subject = TrainerSubject(settings, say=console.print)
    sets = None if stages is None else [possible(text, subject) for text in stages]
    for number, reason in subject.refused.items():
        console.print(f"stage {number} is left out: {reason}", markup=False)
    try:
        result = verify(
            subject,
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


def possible(text: str, subject: TrainerSubject) -> StageSet:
    """The set that `text` means, without what ``all`` brought in and the config can't have.

    Raises:
        StageSetError: a stage that was named and can't be on.
    """
    choice = choose_stages(text)
    refused = {n: why for n, why in subject.refused.items() if n in choice.stages}
    require_possible(refused, choice.optional)
    return frozenset(choice.stages - refused.keys())
