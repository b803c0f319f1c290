"""GRD201: a copy call that goes to the host."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.engine.flow import Event
from onegraph.guards.findings import Hit
from onegraph.guards.rules.copies import direction, is_copy
from onegraph.guards.rules.devices import shown
from onegraph.guards.rules.rule import Context, Rule, examples


def look(event: Event, context: Context) -> Iterator[Hit]:
    if event.kind != "call" or not is_copy(event):
        return
    way = direction(event)
    if way == "dtoh":
        yield Hit(f"{shown(event.call.func)}() copies to the host")
    elif way == "unknown":
        yield Hit(f"{shown(event.call.func)}() may copy to the host", "possible")


RULE = Rule(
    code="GRD201",
    name="raw-dtoh",
    summary="a driver or runtime copy from the device to the host",
    why="""A copy to pageable memory waits until it is done, also in its Async form. Publish to
pinned, device-mapped memory from a kernel, or copy once an epoch.""",
    flagged=examples(
        """\
from cuda.bindings import driver
from onegraph.guards import hot_path

@hot_path
def step(out, total, n, stream):
    driver.cuMemcpyDtoHAsync(out, total, n, stream)
""",
        """\
from cuda.bindings import runtime as rt
from onegraph.guards import hot_path

@hot_path
def step(out, total, n):
    rt.cudaMemcpy(out, total, n, rt.cudaMemcpyKind.cudaMemcpyDeviceToHost)
""",
        """\
import pycuda.driver as drv
from onegraph.guards import hot_path

@hot_path
def step(out, total):
    drv.memcpy_dtoh(out, total)
""",
    ),
    unflagged=examples(
        """\
from cuda.bindings import driver, runtime as rt
from onegraph.guards import hot_path

@hot_path
def step(a, b, n, stream):
    driver.cuMemcpyDtoDAsync(a, b, n, stream)
    rt.cudaMemcpyAsync(a, b, n, rt.cudaMemcpyKind.cudaMemcpyDeviceToDevice, stream)
""",
    ),
    look=look,
)
