"""The command line; ``onegraph --help`` lists its commands.

Whatever a user can get wrong ends in one line on standard error: exit 1 for a run that can't be
done, 2 for a command that can't be read, 130 after Ctrl-C.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["guard"]:
        # A hook runs it at each commit, so it must not wait for what the other commands import.
        from onegraph.guards.cli import main as guard

        return guard(arguments[1:])
    from onegraph.trainer.cli.app import run

    return run(arguments)
