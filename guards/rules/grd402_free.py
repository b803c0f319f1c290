"""GRD402: device memory is freed each step."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown, unknown_receiver
from onegraph.guards.rules.rule import Context, Rule, by_name, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call":
        return
    if event.category == "free":
        yield Hit(f"{shown(event.call.func)}() frees device memory each step")
    elif event.method in ("free_all_blocks", "empty_cache") and unknown_receiver(event):
        yield Hit(f"{shown(event.call.func)}() frees device memory each step", by_name(event))


RULE = Rule(
    code="GRD402",
    name="free",
    summary="device memory is freed each step",
    why="""`cudaFree` waits for the device; emptying a cache makes the next step allocate from the
driver again. Keep the buffers for the life of the run.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(model, x):
    loss = model(x)
    torch.cuda.empty_cache()
    return loss
""",
        """\
from cuda.bindings import runtime
from onegraph.guards import hot_path

@hot_path
def step(scratch):
    runtime.cudaFree(scratch)
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import cold_path, hot_path

@hot_path
def step(file):
    file.close()

@cold_path("between runs")
def reset():
    torch.cuda.empty_cache()
""",
    ),
    look=look,
)
