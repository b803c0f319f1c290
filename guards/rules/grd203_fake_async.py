"""GRD203: ``non_blocking=True`` from memory that is not pinned."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import Array
from onegraph.guards.findings import Edit, Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call" or event.method not in ("to", "cuda", "copy_"):
        return
    if event.keyword("non_blocking") is not True or not isinstance(event.receiver, Array):
        return
    source = event.receiver
    if event.method == "copy_":
        given = event.args[0] if event.args else None
        if not isinstance(given, Array):
            return
        source = given
    if source.place == "host" and not source.pinned:
        yield Hit(
            f"{shown(event.call)} is not asynchronous: its source is not pinned",
            "likely",
            _pin(event),
        )


def _pin(event: Event) -> tuple[Edit, ...]:
    function = event.call.func
    if event.method == "copy_" or not isinstance(function, ast.Attribute):
        return ()
    end = function.value.end_lineno or 0, function.value.end_col_offset or 0
    return (Edit(end, end, ".pin_memory()"),)


RULE = Rule(
    code="GRD203",
    name="fake-async",
    summary="`non_blocking=True` from memory that is not pinned",
    why="""From pageable memory the driver first copies to a buffer of its own, and the call
returns only then. Allocate the source once with `pin_memory=True`.""",
    fix="""inserts `.pin_memory()`; unsafe, since it allocates pinned memory at each call, which is
slower still unless the source is reused.""",
    default=False,
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(states, device):
    return torch.from_numpy(states).to(device, non_blocking=True)
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

class Trainer:
    def __init__(self):
        self.staged = torch.empty(32, 4, pin_memory=True)

    @hot_path
    def step(self, device):
        return self.staged.to(device, non_blocking=True)
""",
    ),
    look=look,
)
