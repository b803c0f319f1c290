"""Consoles that print results and notes."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

#: Columns of a table where there is no terminal to ask.
PLAIN_WIDTH = 132


def results() -> Console:
    """Standard output, wide enough for the tables when it is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def notes() -> Console:
    """Standard error."""
    return Console(stderr=True, soft_wrap=True, highlight=False)


def table(title: str | None, *columns: str, left: int = 1) -> Table:
    """A table whose first `left` columns are text and whose other columns are figures."""
    made = Table(title=title)
    for i, column in enumerate(columns):
        made.add_column(
            column,
            justify="left" if i < left else "right",
            overflow="fold",
            no_wrap=i < left and i < len(columns) - 1,
        )
    return made
