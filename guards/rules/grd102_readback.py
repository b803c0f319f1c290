"""GRD102: a value is read back to the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onegraph.guards.apis import framework_of
from onegraph.guards.engine.arrays import METADATA
from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import Array, Host
from onegraph.guards.findings import Confidence, Edit, Hit
from onegraph.guards.rules.devices import (
    no_arguments,
    on_device,
    shown,
    sureness,
    unknown_receiver,
)
from onegraph.guards.rules.rule import Context, Rule, by_name, examples

_NEVER_HOST = ("to_host", "to_vec", "to_host_checkpoint", "copy_to_host", "device_get")
_BY_NAME = ("item", "cpu", "numpy", "tolist")
_TO_NUMPY = ("numpy.asarray", "numpy.array", "numpy.ascontiguousarray", "numpy.float32")

#: The deprecated spellings, and what takes their place.
RENAMES = {
    "to_host": "to_host_checkpoint",
    "to_vec": "to_host_checkpoint().ravel().tolist",
}


def rename(call: ast.Call) -> tuple[Edit, ...]:
    """The edit that puts the checkpoint's spelling in the place of a deprecated one."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in RENAMES:
        return ()
    if call.args or call.keywords or function.end_lineno is None:
        return ()
    row, end = function.end_lineno, function.end_col_offset or 0
    start = end - len(function.attr.encode())
    return (Edit((row, start), (row, end), RENAMES[function.attr]),)


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call":
        return
    if context == "cold":
        if event.method in RENAMES and (edits := rename(event.call)):
            yield Hit(
                f"{event.method}() is deprecated; in cold code say to_host_checkpoint()",
                "likely",
                edits,
                safe=True,
            )
        return
    if event.guard == "logging":
        return
    call, method = event.call, event.method
    array = on_device(event.receiver)
    if event.category == "dtoh" and not _is_copy(event):
        if isinstance(event.receiver, Array) and array is None:
            return
        if _asynchronous(event):
            return
        sure: Confidence = sureness(array) if array is not None else "proven"
        yield Hit(f"{shown(call.func)}() reads back from the device", sure, rename(call))
    elif method in _NEVER_HOST and not isinstance(event.receiver, Host) and not event.category:
        yield Hit(f"{method}() reads back from the device", "likely", rename(call))
    elif method == "to" and array is not None and _to_cpu(call):
        yield Hit(f"{shown(call)} reads back from the device", sureness(array))
    elif event.dotted in _TO_NUMPY and event.args and (given := on_device(event.args[0])):
        if given.framework in ("torch", "jax", "numba", "warp", "tensorflow"):
            yield Hit(f"{shown(call)} reads back from the device", sureness(given))
    elif method in _BY_NAME and unknown_receiver(event) and no_arguments(event):
        if isinstance(call.func, ast.Attribute) and _is_metadata(call.func.value):
            return
        sure = by_name(event) if _has_method(event) else "possible"
        yield Hit(f"{shown(call)} reads back from the device", sure)


def _is_metadata(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in METADATA


def _is_copy(event: Event) -> bool:
    """The copies are GRD201's."""
    last = event.dotted.rpartition(".")[2]
    return "emcpy" in last or (
        last.startswith(("copy_to_host", "from_device"))
        and ("MemoryPointer" in event.dotted or "pycuda" in event.dotted)
    )


def _asynchronous(event: Event) -> bool:
    """CuPy's ``get(blocking=False)`` and Numba's ``copy_to_host(..., stream=s)``."""
    if event.method == "get":
        return event.keyword("blocking") is False or bool(event.call.args)
    return event.method == "copy_to_host" and any(k.arg == "stream" for k in event.call.keywords)


def _to_cpu(call: ast.Call) -> bool:
    values = [*call.args, *(k.value for k in call.keywords if k.arg == "device")]
    for value in values:
        if isinstance(value, ast.Call) and value.args:  # torch.device("cpu")
            value = value.args[0]
        if isinstance(value, ast.Constant) and value.value == "cpu":
            return True
    return False


def _has_method(event: Event) -> bool:
    """Whether an array of the frameworks that the file imports has such a method.

    Lists, strings and NumPy arrays have a `tolist`-like method too often to go by that name, and an
    array of jax or CuPy has no `numpy()` or `cpu()`.
    """
    if event.method == "tolist":
        return False
    imported = {framework_of(i[3]) for i in event.function.module.declared["imports"]} - {""}
    if event.method == "item" or not imported:
        return True
    return bool(imported & {"torch", "tensordict", "tensorflow", "warp"})


RULE = Rule(
    code="GRD102",
    name="readback",
    summary="a value is read back to the host",
    why="""A read-back waits for everything that was asked of the device before it, then copies.
Publish what you watch from a kernel to pinned, device-mapped memory and read that without waiting,
or keep a ring on the device and read it once an epoch. In a checkpoint or a summary, mark the
function `@cold_path("reason")` and call `to_host_checkpoint()`, which says so.""",
    fix="""renames `to_host()` and `to_vec()` to `to_host_checkpoint()`: safe in code that is
declared cold, unsafe elsewhere, since the name then says what the code is not.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(model, batch, losses):
    loss = model(batch)
    losses.append(loss.item())
""",
        """\
from onegraph.guards import hot_path

@hot_path
def step(device, total):
    sample(total)

def sample(total):
    return total.to_host()
""",
        """\
import cupy as cp
from onegraph.guards import hot_path

@hot_path
def step(priorities: cp.ndarray):
    return cp.asnumpy(priorities)
""",
        """\
import jax
from onegraph.guards import hot_path

@hot_path
def step(update, state):
    return jax.device_get(update(state))
""",
        """\
from onegraph.guards import cold_path

@cold_path("writes a checkpoint")
def save(weights, path):
    path.write_bytes(weights.to_host().tobytes())
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import cold_path, hot_path

@hot_path
def step(model, batch, table, key):
    loss = model(batch)
    rate = table.get(key)
    for name, value in table.items():
        rate = rate + value
    epoch_end(loss)
    return loss

@cold_path("once an epoch, after its sync")
def epoch_end(loss):
    return loss.to_host_checkpoint()
""",
        """\
import numpy as np
import torch
from onegraph.guards import hot_path

@hot_path
def step(rewards: np.ndarray):
    return rewards.mean().item()
""",
    ),
    contexts=frozenset({"hot", "cold"}),
    look=look,
)
