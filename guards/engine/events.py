"""What a pass over a function notes: events for the rules, edges for the spread of hotness."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onegraph.guards.engine.project import Function
from onegraph.guards.engine.values import UNKNOWN, Value


@dataclass
class Event:
    """Something a rule may look at.

    Attributes:
        kind: ``call``, ``truth``, ``format``, ``index`` or ``loop``.
        dotted: the called name as the API table spells it; empty if it could not be told.
        method: the last name of the called expression.
        category: of the API table, or empty.
        value: what is tested, formatted or indexed with.
        construct: ``if``, ``while``, ``f-string``, …
        captured: it stands in a capture, so the device records it and nothing runs.
        guard: see `onegraph.guards.engine.conditions`.
    """

    kind: str
    node: ast.expr
    statement: ast.stmt
    function: Function
    dotted: str = ""
    method: str = ""
    category: str = ""
    receiver: Value = UNKNOWN
    value: Value = UNKNOWN
    args: Sequence[Value] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    construct: str = ""
    captured: bool = False
    guard: str = ""
    in_loop: bool = False
    resolved: bool = True
    frameworks: bool = False

    @property
    def call(self) -> ast.Call:
        assert isinstance(self.node, ast.Call)
        return self.node

    def keyword(self, name: str) -> object:
        """The constant that keyword `name` is given, or None."""
        for word in self.call.keywords:
            if word.arg == name and isinstance(word.value, ast.Constant):
                return word.value.value
        return None


@dataclass
class Edge:
    """A call from one function of the project to another."""

    target: Function
    line: int
    arguments: Mapping[str, Value]
    captured: bool
    guard: str
    in_loop: bool
