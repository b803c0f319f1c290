"""What the guards report."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

Confidence = Literal["proven", "likely", "possible"]


@dataclass(frozen=True)
class Edit:
    """Replace the text from `start` to `end`, ``(line, column)`` with lines from 1, by `text`."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Hit:
    """What a rule says of an event.

    Attributes:
        node: the part of the source that is meant, if not the event's own.
        safe: whether the edits may be made without asking.
    """

    message: str
    confidence: Confidence = "proven"
    edits: tuple[Edit, ...] = ()
    safe: bool = False
    node: ast.expr | None = None


@dataclass(frozen=True)
class Step:
    """A function in a chain."""

    name: str
    path: str
    line: int


@dataclass(frozen=True)
class Finding:
    """A finding.

    Attributes:
        path: from the project's root, with forward slashes.
        line, column: from 1.
        chain: from the root that is hot to the function that holds it; empty where hotness plays
            no part.
        statement: first and last line of its statement, where an allow comment may stand.
        function: the dotted name of the function that holds it.
        fingerprint: the same after a shift of lines; the baseline and GitLab go by it.
    """

    code: str
    message: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    confidence: Confidence = "proven"
    chain: tuple[Step, ...] = ()
    edits: tuple[Edit, ...] = ()
    safe: bool = False
    statement: tuple[int, int] = (0, 0)
    function: str = ""
    fingerprint: str = field(default="", compare=False)

    @property
    def order(self) -> tuple[str, int, int, str]:
        return self.path, self.line, self.column, self.code

    @property
    def chain_text(self) -> str:
        """``trainer.loop.step -> replay.sample -> total_sum``."""
        return " -> ".join(step.name for step in self.chain)
