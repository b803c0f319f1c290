"""GRD103: Python asks a device value whether it is true."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import on_device, shown, sureness
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind == "truth" and (array := on_device(event.value)):
        if array.framework == "project":
            return
        yield Hit(
            f"`{event.construct}` asks {shown(event.node)} for its truth value, and waits for it",
            sureness(array),
        )
    elif event.kind == "call" and event.category == "bool":
        arrays = [a for a in (event.receiver, *event.args) if on_device(a) is not None]
        if arrays:
            yield Hit(
                f"{shown(event.call.func)}() returns a Python bool, and waits for it", "likely"
            )


RULE = Rule(
    code="GRD103",
    name="implicit-bool",
    summary="`if`, `while`, `assert` or `not` on a device value",
    why="""`if tensor:` calls `bool(tensor)`, which waits for the device and copies one value.
Choose on the device (`torch.where`, a multiply by a mask, a conditional graph node), or decide from
numbers that the host has already.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(norm: torch.Tensor, limit):
    if norm > limit:
        return limit / norm
    return norm
""",
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor):
    assert not torch.isnan(loss)
""",
        """\
import cupy as cp
from onegraph.guards import hot_path

@hot_path
def step(done):
    flags = cp.asarray(done)
    while flags.any():
        flags = flags[1:]
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(mask: torch.Tensor | None, x: torch.Tensor):
    if mask is None or x.shape[0] == 0 or x.dtype == torch.float16:
        return x
    return torch.where(mask > 0, x, 0.0)
""",
    ),
    look=look,
)
