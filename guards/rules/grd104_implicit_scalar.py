"""GRD104: a device value becomes a Python number."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import on_device, shown, sureness
from onegraph.guards.rules.rule import Context, Rule, examples

_BUILTINS = ("float", "int", "bool", "range", "complex", "round")


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.guard == "logging":
        return
    if event.kind == "scalar" and (array := on_device(event.value)):
        yield Hit(f"{shown(event.node)} is read back for {event.construct}", sureness(array))
    if event.kind != "call" or not event.dotted.startswith("builtins."):
        return
    name = event.dotted.removeprefix("builtins.")
    if name in _BUILTINS:
        for argument, value in zip(event.call.args, event.args, strict=False):
            if (array := on_device(value)) and array.framework != "project":
                yield Hit(f"{name}({shown(argument)}) reads back from the device", sureness(array))


RULE = Rule(
    code="GRD104",
    name="implicit-scalar",
    summary="`float()`, `int()`, `bool()` or `range()` of a device value",
    why="""The conversion waits for the device and copies one value, as `.item()` does. Keep the
number on the device, or read it once an epoch.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor, history):
    history.append(float(loss))
""",
        """\
import jax.numpy as jnp
from onegraph.guards import hot_path

@hot_path
def step(counts):
    for _ in range(jnp.sum(counts)):
        pass
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(x: torch.Tensor, rate):
    return float(x.shape[0]) * float(rate) * int(x.numel())
""",
    ),
    look=look,
)
