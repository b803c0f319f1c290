"""GRD202: something is uploaded each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import Array, External, Group, Host, Items
from onegraph.guards.findings import Hit
from onegraph.guards.rules.copies import direction, is_copy
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples

_TORCH = ("torch.tensor", "torch.as_tensor", "torch.scalar_tensor", "torch.asarray")


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call":
        return
    call = event.call
    if is_copy(event):
        if direction(event) == "htod":
            yield Hit(f"{shown(call.func)}() uploads from the host")
    elif event.dotted in _TORCH:
        if _device(call) and not any(isinstance(a, Array) for a in event.args[:1]):
            yield Hit(f"{shown(call.func)}(..., device=...) uploads from the host", "likely")
    elif event.dotted in ("torch.Tensor.to", "torch.Tensor.cuda"):
        if isinstance(event.receiver, Array) and event.receiver.place == "host":
            if event.receiver.pinned and event.keyword("non_blocking") is True:
                return
            if event.method == "cuda" or _moves(event):
                yield Hit(f"{shown(call)} uploads from the host", "likely")
    elif event.dotted.startswith(("cupy.", "jax.numpy.")) and event.category == "htod":
        if event.dotted == "cupy.ndarray.set":
            yield Hit(f"{shown(call.func)}() uploads from the host")
        elif event.args and isinstance(event.args[0], (Host, Items, Group)):
            yield Hit(f"{shown(call)} uploads from the host")
    elif (
        event.category == "htod"
        and not event.dotted.startswith("torch.")
        and not (event.args and isinstance(event.args[0], Array))
    ):
        yield Hit(f"{shown(call.func)}() uploads from the host")


def _device(call: ast.Call) -> bool:
    """``device=`` is given and is not the host."""
    for word in call.keywords:
        if word.arg == "device":
            if isinstance(word.value, ast.Constant):
                return word.value.value not in (None, "cpu")
            return True
    return False


def _moves(event: Event) -> bool:
    """``.to(device)`` and not ``.to(dtype)`` or ``.to("cpu")``."""
    call = event.call
    if any(k.arg == "device" for k in call.keywords):
        return _device(call)
    if not call.args:
        return False
    first, value = call.args[0], event.args[0]
    if isinstance(first, ast.Constant):
        return isinstance(first.value, str) and first.value != "cpu"
    if isinstance(value, External):
        return False  # torch.float32
    return "dtype" not in ast.unparse(first)


RULE = Rule(
    code="GRD202",
    name="per-step-htod",
    summary="something is uploaded from the host each step",
    why="""An upload from pageable memory is staged by the driver and holds the host up. Keep what
the step needs on the device: the replay, the schedules, the random numbers. What must be uploaded
goes once, or from pinned memory on a stream of its own.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(batch, device):
    weights = torch.as_tensor(batch.weights, device=device)
    states = torch.from_numpy(batch.states).to(device)
    return states, weights
""",
        """\
import cupy as cp
import numpy as np
from onegraph.guards import hot_path

@hot_path
def step(rng: np.random.Generator):
    return cp.asarray(np.random.rand(32))
""",
        """\
from numba import cuda
from onegraph.guards import hot_path

@hot_path
def step(batch):
    return cuda.to_device(batch)
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(x: torch.Tensor, pinned: torch.Tensor, device):
    y = x.to(torch.float16)
    z = torch.from_numpy(x).pin_memory().to(device, non_blocking=True)
    return y, z, torch.as_tensor(x)
""",
    ),
    look=look,
)
