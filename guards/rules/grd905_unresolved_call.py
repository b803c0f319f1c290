"""GRD905: a call in hot code that could not be followed."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import UNKNOWN, Host
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    unknown = event.kind == "call" and not event.dotted and event.value == UNKNOWN
    if unknown and not isinstance(event.receiver, Host):
        yield Hit(f"{shown(event.call.func)}() can't be followed: what it calls is not known")


RULE = Rule(
    code="GRD905",
    name="unresolved-hot-call",
    summary="a call in hot code that the guards can't follow",
    why="""What it reaches is not looked at. Annotate the parameter or the attribute with its
class, or mark the functions that it may reach.""",
    default=False,
    flagged=examples(
        """\
from onegraph.guards import hot_path

@hot_path
def step(policy):
    policy.update()
"""
    ),
    unflagged=examples(
        """\
from onegraph.guards import hot_path

class Policy:
    def update(self):
        pass

@hot_path
def step(policy: Policy, names: str):
    policy.update()
    len(names)
"""
    ),
    look=look,
)
