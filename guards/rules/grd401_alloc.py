"""GRD401: device memory is allocated each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import UNKNOWN, Array
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown, unknown_receiver
from onegraph.guards.rules.rule import Context, Rule, by_name, examples

_NEW = ("new_empty", "new_zeros", "new_ones", "new_full")


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call":
        return
    call = event.call
    if event.method in _NEW and unknown_receiver(event):
        yield Hit(f"{shown(call.func)}() allocates each step", by_name(event))
    if event.category != "alloc" or any(k.arg in ("out", "pin_memory") for k in call.keywords):
        return
    if not event.dotted.startswith("torch."):
        yield Hit(f"{shown(call.func)}() allocates each step")
    elif event.dotted.startswith("torch.Tensor.") or event.dotted.endswith("_like"):
        like = event.receiver if event.dotted.startswith("torch.Tensor.") else _first(event)
        if isinstance(like, Array) and like.place != "host":
            yield Hit(f"{shown(call.func)}() allocates each step", "likely")
        elif like == UNKNOWN:
            yield Hit(f"{shown(call.func)}() allocates each step", "possible")
    elif _on_device(call):
        yield Hit(f"{shown(call.func)}(..., device=...) allocates each step", "likely")


def _first(event: Event) -> object:
    return event.args[0] if event.args else UNKNOWN


def _on_device(call: ast.Call) -> bool:
    for word in call.keywords:
        if word.arg == "device":
            return not (isinstance(word.value, ast.Constant) and word.value.value in (None, "cpu"))
    return False


RULE = Rule(
    code="GRD401",
    name="alloc",
    summary="device memory is allocated each step",
    why="""An allocation takes a lock and, when the pool is short, waits for the device; and a
graph holds the address that it was captured with. Allocate once, at construction, for the largest
batch, and write into it (`out=`, `zero_()`).""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(n, device, x: torch.Tensor):
    mask = torch.zeros(n, device=device)
    return mask, torch.empty_like(x)
""",
        """\
import cupy as cp
from onegraph.guards import hot_path

@hot_path
def step(n):
    return cp.zeros(n)
""",
        """\
from cuda.core import Device
from onegraph.guards import hot_path

class Trainer:
    def __init__(self):
        self.device = Device()

    @hot_path
    def step(self, stream):
        scratch = self.device.allocate(1024, stream)
""",
    ),
    unflagged=examples(
        """\
import numpy as np
import torch
from cuda.core.graph import GraphDefinition
from onegraph.guards import hot_path

@hot_path
def step(a: torch.Tensor, out: torch.Tensor):
    torch.add(a, 1.0, out=out)
    torch.arange(4, out=out)
    definition = GraphDefinition()
    definition.allocate(1024)
    return np.zeros(3)
""",
    ),
    look=look,
)
