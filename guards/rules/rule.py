"""What a rule is. Each stands in one file with its message, its examples and its fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onegraph.guards.config import Config
from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.project import Module
from onegraph.guards.findings import Confidence, Hit

#: ``hot``; ``captured``, recorded into a graph; ``cold``, declared so; ``other``, all the rest.
Context = Literal["hot", "captured", "cold", "other"]

Look = Callable[[Event, Context], Iterable[Hit]]
LookAll = Callable[[Sequence[Event]], Iterable[tuple[Event, Hit]]]
LookImports = Callable[[Module, Config], Iterable[tuple[int, int, Hit]]]


@dataclass(frozen=True)
class Example:
    """A file that a rule flags or leaves alone; it is a test, and stands on the rule's page.

    Attributes:
        config: a ``[tool.onegraph.guards]`` table in TOML.
        files: other files of the example by path.
        path: where the source stands.
    """

    source: str
    config: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    path: str = "example.py"


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        name: in kebab case.
        summary: what it flags, in a line.
        why: what the pattern costs, and what to do in its place.
        fix: what ``--fix`` does; empty for nothing.
        default: whether it is on without being asked for.
        contexts: where `look` is asked.
        look: for each event.
        look_all: once, for every event of the project.
        look_imports: for each file.
    """

    code: str
    name: str
    summary: str
    why: str
    flagged: tuple[Example, ...]
    unflagged: tuple[Example, ...]
    default: bool = True
    fix: str = ""
    contexts: frozenset[Context] = frozenset({"hot"})
    look: Look | None = None
    look_all: LookAll | None = None
    look_imports: LookImports | None = None


def examples(*sources: str) -> tuple[Example, ...]:
    """Examples that need nothing beside their source."""
    return tuple(Example(source) for source in sources)


def by_name(event: Event) -> Confidence:
    """How sure a finding is that rests on a method's name alone: the receiver is not known."""
    return "likely" if event.frameworks else "possible"
