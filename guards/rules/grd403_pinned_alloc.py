"""GRD403: page-locked memory is allocated each step."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown, unknown_receiver
from onegraph.guards.rules.rule import Context, Rule, by_name, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call":
        return
    if event.category == "pinned_alloc" or event.keyword("pin_memory") is True:
        yield Hit(f"{shown(event.call.func)}() page-locks memory each step")
    elif event.method == "pin_memory" and unknown_receiver(event):
        yield Hit(f"{shown(event.call.func)}() page-locks memory each step", by_name(event))


RULE = Rule(
    code="GRD403",
    name="pinned-alloc",
    summary="page-locked host memory is allocated each step",
    why="""Page-locking asks the operating system and the driver, and costs more than the copy that
it speeds up. Allocate staging buffers once.""",
    default=False,
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(states):
    return torch.from_numpy(states).pin_memory()
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

class Trainer:
    def __init__(self):
        self.staged = torch.empty(32, pin_memory=True)

    @hot_path
    def step(self):
        return self.staged
""",
    ),
    look=look,
)
