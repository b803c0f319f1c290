"""GRD501: one module's kernels are launched both in graphs and outside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import Instance
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.grd301_ungraphed_launch import is_graphed
from onegraph.guards.rules.rule import Rule, examples


def look_all(events: Sequence[Event]) -> Iterator[tuple[Event, Hit]]:
    graphed: dict[str, Event] = {}
    ungraphed: dict[str, list[Event]] = {}
    for event in events:
        if event.kind != "call" or event.category != "launch":
            continue
        if origin := _module(event):
            if event.captured or is_graphed(event):
                graphed.setdefault(origin, event)
            else:
                ungraphed.setdefault(origin, []).append(event)
    for origin, outside in ungraphed.items():
        if (inside := graphed.get(origin)) is not None:
            place = f"{inside.function.module.shown}:{inside.node.lineno}"
            for event in outside:
                yield (
                    event,
                    Hit(
                        f"{shown(event.call.func)}(...) launches from the module loaded at"
                        f" {origin.rpartition(':')[0]} outside a graph; {place} launches from it"
                        " in one",
                        "likely",
                    ),
                )


def _module(event: Event) -> str:
    """Where the kernel's module was loaded."""
    for value in (*event.args, *event.keywords.values(), event.value, event.receiver):
        if isinstance(value, Instance) and value.origin:
            return value.origin
    return ""


RULE = Rule(
    code="GRD501",
    name="shared-module",
    summary="one module's kernels are launched both in graphs and outside them",
    why="""Function attributes and the module's lifetime are shared by both uses, so a change or an
unload for one reaches the other. Load the module twice. An A/B on an H200 saw no cost in time: this
is about isolation.""",
    flagged=examples(
        """\
from cuda.core import Device, LaunchConfig, Program, launch

class Trainer:
    def __init__(self, source):
        self.stream = Device().create_stream()
        self.module = Program(source, "c++").compile("cubin")

    def eager(self, config):
        launch(self.stream, config, self.module.get_kernel("a"))

    def graphed(self, config):
        builder = self.stream.create_graph_builder()
        builder.begin_building()
        launch(builder, config, self.module.get_kernel("b"))
        builder.end_building()
""",
    ),
    unflagged=examples(
        """\
from cuda.core import Device, LaunchConfig, Program, launch

class Trainer:
    def __init__(self, source):
        self.stream = Device().create_stream()
        self.ungraphed = Program(source, "c++").compile("cubin")
        self.graphed = Program(source, "c++").compile("cubin")

    def eager(self, config):
        launch(self.stream, config, self.ungraphed.get_kernel("a"))

    def capture(self, config):
        builder = self.stream.create_graph_builder()
        builder.begin_building()
        launch(builder, config, self.graphed.get_kernel("a"))
        builder.end_building()
""",
    ),
    contexts=frozenset(),
    look_all=look_all,
)
