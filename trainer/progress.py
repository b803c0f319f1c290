"""Progress of a long run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

#: Seconds between two plain lines.
PLAIN_EVERY = 10.0


class Display(Protocol):
    """What a loop tells of its progress."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def update(self, done: float, note: str = "") -> None:
        """So much of the total is done."""

    def say(self, line: str) -> None:
        """A line that stays."""


class ProgressDisplay:
    """Counts towards `total`; `note` is shown beside the bar.

    On a terminal this is one live line; elsewhere a line every ten seconds, so that a log stays
    readable. Both go to standard error: standard output is for results.
    """

    def __init__(self, total: int, label: str, *, console: Console | None = None) -> None:
        self.total, self.label = total, label
        self.console = console if console is not None else Console(stderr=True)
        self._bar: Progress | None = None
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self.console,
                transient=True,
            )
            self._task = self._bar.add_task(label, total=total, note="")
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: float, note: str = "") -> None:
        """Show that `done` of the total are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
        elif time.monotonic() - self._said >= PLAIN_EVERY:
            self._said = time.monotonic()
            self.say(f"{self.label}: {int(done):,} of {self.total:,} {note}".rstrip())

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            print(line, file=self.console.file, flush=True)
