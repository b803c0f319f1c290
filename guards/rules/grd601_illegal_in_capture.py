"""GRD601: what CUDA forbids while a stream is capturing."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import Array
from onegraph.guards.findings import Hit
from onegraph.guards.rules import (
    grd101_explicit_sync,
    grd102_readback,
    grd103_implicit_bool,
    grd104_implicit_scalar,
    grd106_data_dependent_shape,
    grd202_per_step_htod,
)
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples

#: What waits for the device or copies is illegal inside a capture too.
_WAITING = (
    grd101_explicit_sync.look,
    grd102_readback.look,
    grd103_implicit_bool.look,
    grd104_implicit_scalar.look,
    grd106_data_dependent_shape.look,
)
#: Frameworks whose allocator serves a capture from the graph's own pool.
_OWN_POOL = ("torch.", "jax.", "warp.", "cupy.", "tensorflow.")
_WORDS = {
    "poll": "asks a stream or an event",
    "pinned_alloc": "allocates",
    "module_load": "loads a module",
    "free": "frees",
    "alloc": "allocates",
}


def look(event: Event, context: Context) -> Iterator[Hit]:
    for waiting in _WAITING:
        for hit in waiting(event, "hot"):
            yield Hit(f"inside a capture: {hit.message}", hit.confidence)
            return
    if event.kind != "call":
        return
    category = event.category
    if category == "alloc" and event.dotted.startswith(_OWN_POOL):
        return
    if category == "module_load" and event.dotted.startswith(("jax.", "torch.")):
        return
    if category in _WORDS:
        yield Hit(f"inside a capture: {shown(event.call.func)}() {_WORDS[category]}")
    elif not event.dotted.startswith("jax.") and not _traced(event):
        for hit in grd202_per_step_htod.look(event, "hot"):
            yield Hit(f"inside a capture: {hit.message}", hit.confidence)


def _traced(event: Event) -> bool:
    return any(isinstance(a, Array) and a.framework == "jax" for a in event.args)


RULE = Rule(
    code="GRD601",
    name="illegal-in-capture",
    summary="a wait, a query, an allocation, a pageable copy or a load inside a capture",
    why="""CUDA refuses it with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and the capture is lost; in
a compiler's trace (`jax.jit`) it raises, or runs once and is baked in. Do it before the capture.
This looks at cold code too.""",
    contexts=frozenset({"captured"}),
    flagged=examples(
        """\
import torch

def capture(model, x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = body(model, x)
    return graph, loss

def body(model, x: torch.Tensor):
    torch.cuda.synchronize()
    return model(x)
""",
        """\
from cuda.core import Device, launch

def capture(config, kernel):
    device = Device()
    stream = device.create_stream()
    builder = stream.create_graph_builder().begin_building()
    scratch = device.allocate(1024, stream)
    launch(builder, config, kernel)
    builder.end_building()
""",
        """\
import jax
import jax.numpy as jnp

@jax.jit
def update(state):
    return state, jnp.sum(state).item()
""",
    ),
    unflagged=examples(
        """\
import torch

def capture(model, x: torch.Tensor):
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x) + torch.zeros_like(x)
    torch.cuda.synchronize()
    return graph, out
""",
    ),
    look=look,
)
