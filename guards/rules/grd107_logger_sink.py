"""GRD107: a metrics logger is fed each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, by_name, examples

_NAMES = frozenset(
    {"add_scalar", "add_scalars", "add_histogram", "add_image", "add_video", "add_figure"}
)


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call" or event.guard:
        return
    if event.category == "sink":
        yield Hit(f"{shown(event.call.func)}() is fed each step")
    elif event.method in _NAMES and isinstance(event.call.func, ast.Attribute):
        yield Hit(f"{shown(event.call.func)}() is fed each step", by_name(event))


RULE = Rule(
    code="GRD107",
    name="logger-sink",
    summary="a metrics logger is fed each step",
    why="""A logger turns what it is given into a Python number, which waits for the device, and
writes a file. Feed it once an epoch, or under `step % n == 0`.""",
    default=False,
    flagged=examples(
        """\
from torch.utils.tensorboard import SummaryWriter
from onegraph.guards import hot_path

class Trainer:
    def __init__(self):
        self.writer = SummaryWriter()

    @hot_path
    def step(self, loss, n):
        self.writer.add_scalar("loss", loss, n)
""",
        """\
import wandb
from onegraph.guards import hot_path

@hot_path
def step(loss):
    wandb.log({"loss": loss})
""",
    ),
    unflagged=examples(
        """\
import wandb
from onegraph.guards import hot_path

@hot_path
def step(loss, n):
    if n % 1000 == 0:
        wandb.log({"loss": loss})
""",
    ),
    look=look,
)
