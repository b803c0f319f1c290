"""GRD301: a kernel is launched outside any graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import UNKNOWN, Instance
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples


def is_graphed(event: Event) -> bool:
    """The launch goes onto a graph builder, or adds a node."""
    given = [*event.args, *event.keywords.values(), event.receiver]
    if any(isinstance(v, Instance) and v.dotted.startswith("cuda.core.graph.") for v in given):
        return True
    first = event.call.args[0] if event.call.args else None
    if event.args and event.args[0] == UNKNOWN and first is not None:
        return "builder" in ast.unparse(first).lower()
    return False


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind == "call" and event.category == "launch" and not is_graphed(event):
        yield Hit(f"{shown(event.call.func)}(...) launches a kernel outside any graph")


RULE = Rule(
    code="GRD301",
    name="ungraphed-launch",
    summary="a kernel is launched outside any graph",
    why="""Each launch costs the host some microseconds (5.7 us through cuda.core on an H200), so a
step of hundreds of launches is bound by the host. Capture the step once and replay it: one
`cuGraphLaunch`, at 0.75 us a node.""",
    flagged=examples(
        """\
from cuda.core import Device, LaunchConfig, launch
from onegraph.guards import hot_path

class Trainer:
    def __init__(self):
        self.stream = Device().create_stream()

    @hot_path
    def step(self, kernel, args):
        launch(self.stream, LaunchConfig(grid=1, block=32), kernel, *args)
""",
        """\
import triton
from onegraph.guards import hot_path

@triton.jit
def add(x, y, n):
    pass

@hot_path
def step(x, y):
    add[(1,)](x, y, 4)
""",
        """\
from numba import cuda
from onegraph.guards import hot_path

@cuda.jit
def add(x, y):
    pass

@hot_path
def step(x, y):
    add[1, 32](x, y)
""",
        """\
import warp as wp
from onegraph.guards import hot_path

@hot_path
def step(kernel, x):
    wp.launch(kernel, dim=4, inputs=[x])
""",
        """\
import cupy as cp
from onegraph.guards import hot_path

class Tree:
    def __init__(self, source):
        self.descend = cp.RawKernel(source, "descend")

    @hot_path
    def sample(self, args):
        self.descend((1,), (32,), args)
""",
    ),
    unflagged=examples(
        """\
from cuda.core import Device, LaunchConfig, launch
from cuda.core.graph import GraphDefinition
from onegraph.guards import cold_path, hot_path

class Trainer:
    def __init__(self):
        self.stream = Device().create_stream()
        self.graph = None

    @hot_path
    def step(self, kernel, args):
        if self.graph is None:
            self.graph = self.capture(kernel, args)
        self.graph.launch(self.stream)

    def capture(self, kernel, args):
        builder = self.stream.create_graph_builder()
        builder.begin_building()
        launch(builder, LaunchConfig(grid=1, block=32), kernel, *args)
        return builder.end_building().complete()

@hot_path
def add_node(config, kernel):
    definition = GraphDefinition()
    definition.launch(config, kernel)
""",
        """\
import warp as wp
from onegraph.guards import hot_path

class Sim:
    def __init__(self, kernel, x):
        with wp.ScopedCapture() as capture:
            self.substep(kernel, x)
        self.graph = capture.graph

    def substep(self, kernel, x):
        wp.launch(kernel, dim=4, inputs=[x])

    @hot_path
    def step(self):
        wp.capture_launch(self.graph)
""",
    ),
    look=look,
)
