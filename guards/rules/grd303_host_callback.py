"""GRD303: the device calls back into Python."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind == "call" and event.category == "host_callback":
        yield Hit(f"{shown(event.call.func)}() has the device wait for Python each step")


RULE = Rule(
    code="GRD303",
    name="host-callback",
    summary="a host function in the stream, the graph or the compiled step",
    why="""The device waits until the host has run the function, which waits for the interpreter's
lock. Let the kernel write what the host wants to know into pinned memory.""",
    default=False,
    contexts=frozenset({"hot", "captured"}),
    flagged=examples(
        """\
import jax
from onegraph.guards import hot_path

@hot_path
def step(loss):
    jax.debug.callback(print, loss)
""",
        """\
import cupy as cp
from onegraph.guards import hot_path

@hot_path
def step(stream: cp.cuda.Stream, note):
    stream.launch_host_func(note, None)
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(stream: torch.cuda.Stream, event):
    stream.wait_event(event)
""",
    ),
    look=look,
)
