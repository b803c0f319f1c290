"""GRD502: kernels are compiled or loaded each step."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call":
        return
    if event.category == "module_load":
        yield Hit(f"{shown(event.call.func)}() compiles or loads kernels each step")


RULE = Rule(
    code="GRD502",
    name="module-churn",
    summary="kernels are compiled or loaded in hot or capturing code",
    why="""A compilation takes tens of milliseconds, a load allocates and may wait for the device,
and neither is allowed in a capture. Load at construction and keep the kernels.""",
    default=False,
    contexts=frozenset({"hot", "captured"}),
    flagged=examples(
        """\
import cupy as cp
from onegraph.guards import hot_path

@hot_path
def step(source):
    return cp.RawModule(code=source).get_function("add")
""",
        """\
import jax
from onegraph.guards import hot_path

@hot_path
def step(update, state):
    return jax.jit(update)(state)
""",
    ),
    unflagged=examples(
        """\
import cupy as cp
from onegraph.guards import hot_path

class Kernels:
    def __init__(self, source):
        self.module = cp.RawModule(code=source)

    @hot_path
    def step(self):
        return self.module
""",
    ),
    look=look,
)
