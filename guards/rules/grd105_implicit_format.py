"""GRD105: a device value is printed."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import on_device, shown, sureness
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "format" or event.guard == "logging":
        return
    if array := on_device(event.value):
        yield Hit(
            f"{event.construct} formats {shown(event.node)}, and reads it back", sureness(array)
        )


RULE = Rule(
    code="GRD105",
    name="implicit-format",
    summary="a device value in `print`, an f-string or a logger's arguments",
    why="""Formatting reads the value back, also where the logger's level drops the line: the
f-string is built first. Log what was read once an epoch.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor):
    print(f"loss {loss}")
""",
        """\
import logging
import torch
from onegraph.guards import hot_path

logger = logging.getLogger(__name__)

@hot_path
def step(loss: torch.Tensor):
    logger.info("loss %s", loss)
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(x: torch.Tensor, n):
    if x.ndim != 2:
        raise ValueError(f"x is {x}")
    return f"{x.shape} {x.dtype} {n}"
""",
    ),
    look=look,
)
