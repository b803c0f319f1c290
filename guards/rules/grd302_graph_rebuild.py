"""GRD302: a graph is built again each step."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples

_WHAT = {"graph_rebuild": "instantiates or updates a graph", "capture_begin": "begins a capture"}


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind == "call" and event.category in _WHAT:
        yield Hit(f"{shown(event.call.func)}() {_WHAT[event.category]} each step")


RULE = Rule(
    code="GRD302",
    name="graph-rebuild",
    summary="a graph is captured, instantiated or uploaded each step",
    why="""Capture and instantiation cost more than the launches that they save. Do both once,
`if self.graph is None:`, keep what changes in device memory, and replay.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(model, x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    graph.replay()
""",
        """\
from cuda.core.graph import GraphDefinition
from onegraph.guards import hot_path

@hot_path
def step(stream, config, kernel):
    definition = GraphDefinition()
    definition.launch(config, kernel)
    definition.instantiate().launch(stream)
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

class Trainer:
    def __init__(self):
        self.graph = None

    @hot_path
    def step(self, model, x):
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                model(x)
        self.graph.replay()
""",
    ),
    look=look,
)
