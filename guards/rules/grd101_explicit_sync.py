"""GRD101: the host waits for the device."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import no_arguments, shown, unknown_receiver
from onegraph.guards.rules.rule import Context, Rule, by_name, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call":
        return
    if event.category == "sync":
        yield Hit(f"{shown(event.call.func)}() waits for the device")
    elif event.method == "block_until_ready":
        yield Hit("block_until_ready() waits for the device", "likely")
    elif (
        event.method in ("synchronize", "sync") and unknown_receiver(event) and no_arguments(event)
    ):
        yield Hit(f"{shown(event.call.func)}() waits for the device", by_name(event))


RULE = Rule(
    code="GRD101",
    name="explicit-sync",
    summary="the host waits for the device",
    why="""A synchronisation empties the queue that keeps the device busy: it idles until the host
has issued the next step. Order work on the device with an event that another stream waits on, and
read results once an epoch, after the epoch's own synchronisation.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(model, batch):
    loss = model(batch)
    torch.cuda.synchronize()
    return loss
""",
        """\
from cuda.core import Device
from onegraph.guards import hot_path

class Trainer:
    def __init__(self):
        self.stream = Device().create_stream()

    @hot_path
    def step(self):
        self.stream.sync()
""",
        """\
from cuda.bindings import driver
from onegraph.guards import hot_path

@hot_path
def step(stream):
    driver.cuStreamSynchronize(stream)
""",
        """\
import jax
from onegraph.guards import hot_path

@hot_path
def step(update, state):
    return update(state).block_until_ready()
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import cold_path, hot_path

@hot_path
def step(side, event):
    side.wait_event(event)  # the device waits, the host goes on
    summary()

@cold_path("once an epoch")
def summary():
    torch.cuda.synchronize()
""",
    ),
    look=look,
)
