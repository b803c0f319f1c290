"""GRD106: a result's shape depends on data."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.values import UNKNOWN, Array
from onegraph.guards.findings import Hit
from onegraph.guards.rules.devices import on_device, shown, sureness
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind == "index" and (mask := on_device(event.value)):
        array = on_device(event.receiver)
        if array is None:
            return
        if event.construct == "store" and not any(isinstance(a, Array) for a in event.args):
            return  # a scalar through a mask is a masked fill
        yield Hit(
            f"{shown(event.node)} indexes by a boolean mask, so the host waits for its length",
            sureness(mask),
        )
        return
    if event.kind != "call":
        return
    if event.category == "shape" or event.dotted == "torch.where":
        name = event.dotted.rpartition(".")[2]
        if name == "where" and len(event.call.args) + len(event.call.keywords) != 1:
            return
        if any(k.arg in ("size", "output_size") for k in event.call.keywords):
            return
        if name == "repeat_interleave":
            repeats = event.args[1:] if event.dotted == "torch.repeat_interleave" else event.args
            if not any(isinstance(a, Array) for a in repeats):
                return
        given = [event.receiver, *event.args]
        array = next((a for v in given if (a := on_device(v))), None)
        if array is not None or all(v == UNKNOWN for v in given):
            yield Hit(
                f"the shape of {shown(event.call)} depends on data, so the host waits for it",
                sureness(array) if array is not None else "likely",
            )


RULE = Rule(
    code="GRD106",
    name="data-dependent-shape",
    summary="`nonzero`, `unique` or an index by a boolean mask",
    why="""The host must know a result's shape before it can go on, so it waits; and a graph can't
hold such an operation at all. Keep a fixed shape: multiply by the mask, `torch.where` with three
arguments, `masked_fill`, sort and count, or `size=` in jax.""",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(td: torch.Tensor, done: torch.Tensor):
    ended = torch.nonzero(done)
    return td[td > 0].sum(), ended
""",
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(index: torch.Tensor):
    return torch.unique(index), torch.where(index > 0)
""",
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(td: torch.Tensor, index: torch.Tensor):
    td[td < 0] = 0.0
    return torch.where(td > 0, td, 0.0), td[index], td[:, 0]
""",
    ),
    look=look,
)
