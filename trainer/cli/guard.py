"""``onegraph guard`` in the list of commands.

`onegraph.trainer.cli.main` runs it before this module is imported; it stands here for ``--help``.
"""

from __future__ import annotations

import typer

from onegraph.guards.cli import main

#: Everything after ``guard`` is read by the guards' own parser.
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def guard(context: typer.Context) -> None:
    """Keep host round trips out of hot code: check, rule, codemod."""
    raise typer.Exit(main(context.args))
