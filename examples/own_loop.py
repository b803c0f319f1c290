"""A loop of your own, migrated: mini-batch k-means, from read-backs each step to one graph launch.

It has the quirks of many a training loop: a counter on the host whose value is uploaded, scratch
that is allocated and freed in each step, a blocking memset, and a read-back to add up the inertia.
`docs/writing-a-stage.md` goes through this file. Run it: ``python examples/own_loop.py``.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from onegraph.kernels.catalogue import find, load_kernels
from onegraph.kernels.device import open_device
from onegraph.stages import STAGES, Buffer, Fragment, Launch, Limit, Phase, Ref, Stage, StepProgram
from onegraph.stages.bench import bench
from onegraph.stages.bench_table import times_table
from onegraph.stages.page.loop_report import loop_report
from onegraph.stages.program import Alloc, Copy, Free, Host, Memset
from onegraph.stages.program_subject import ProgramSubject
from onegraph.stages.verify import cumulative_sets, verify
from onegraph.stages.verify_table import verify_lines, verify_table

load_kernels(Path(__file__).with_name("own_loop_kernels"))

ROWS, DIMS, CLUSTERS, BATCH = 4096, 8, 16, 128


def points():
    """ROWS points [ROWS, DIMS] around CLUSTERS centres, shuffled."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 5, (CLUSTERS, DIMS))
    near = centres[rng.integers(0, CLUSTERS, ROWS)] + rng.normal(0, 1, (ROWS, DIMS))
    return near.astype(np.float32)


BUFFERS = (
    Buffer("points", (ROWS, DIMS), "f32", initial=points),
    Buffer("centroids", (CLUSTERS, DIMS), "f32", initial=lambda: points()[:CLUSTERS]),
    Buffer("count", (CLUSTERS,), "i64", initial=lambda: np.ones(CLUSTERS, np.int64)),
    Buffer("first", (1,), "i32"),
    Buffer("label", (BATCH,), "i32"),
    Buffer("distance", (BATCH,), "f32"),
    Buffer("h_step", (1,), "i64", "host"),
    Buffer("h_first", (1,), "i32", "host"),
    Buffer("scratch", (1,), "f64", transient=True),
    Buffer("h_inertia", (1,), "f64", "host"),
    Buffer("h_total", (1,), "f64", "host"),
)


# ---- the step as it was: what a stage will replace carries a group's name


def advance(h):
    """The batch's first row, and the counter."""
    h["h_first"][0] = h["h_step"][0] * BATCH % ROWS
    h["h_step"][0] += 1


def add_up(h):
    """The running total of the inertia."""
    h["h_total"][0] += h["h_inertia"][0]


def launch(kernel, **constants):
    """A launch whose arguments have the buffers' names."""
    names = [p.name for p in find(kernel).params if p.name not in constants]
    return Launch(kernel, {**{name: Ref(name) for name in names}, **constants})


SHAPE = {"batch": BATCH, "clusters": CLUSTERS, "dims": DIMS}

COUNTER = (
    Host("advance", advance, ("h_step",), ("h_step", "h_first"), group="counter"),
    Copy(Ref("first"), Ref("h_first"), "htod", group="counter"),
)

SUM = {"distance": Ref("distance"), "inertia": Ref("scratch"), "batch": BATCH}

INERTIA = (
    Alloc("scratch", group="inertia"),
    Memset(Ref("scratch"), blocking=True, group="inertia"),
    Launch("km_inertia", SUM, group="inertia"),
    Copy(Ref("h_inertia"), Ref("scratch"), "dtoh", group="inertia"),
    Free("scratch", group="inertia"),
    Host("add_up", add_up, ("h_inertia", "h_total"), ("h_total",), group="inertia"),
)

LEGACY = StepProgram(
    "kmeans",
    "learn",
    (
        Phase("batch", COUNTER),
        Phase("assign", (launch("km_assign", **SHAPE),)),
        Phase("move", (launch("km_move", **SHAPE),)),
        Phase("report", INERTIA),
    ),
    BUFFERS,
)


# ---- a stage of its own, between the package's 3 and 5


def on_the_device(program, parts):
    """Count and add up on the device; the host reads the total whenever it likes, unasked."""
    counter = launch("km_advance", rows=ROWS, batch=BATCH)
    program = program.replace_group(
        "counter", Fragment((counter,), (Buffer("step", (1,), "i64"), Buffer("first", (1,), "i32")))
    )
    total = launch("km_inertia", batch=BATCH)
    return program.replace_group(
        "inertia", Fragment((total,), (Buffer("inertia", (1,), "f64", "pinned"),))
    )


def no_host(program):
    """What the stage promises of a step: none of these calls."""
    kinds = ("host", "htod", "dtoh", "alloc", "free", "memset_sync", "sync")
    return tuple(Limit(kind, 0, stage="device-scalars") for kind in kinds)


OWN = Stage(4, "device-scalars", "counter and total on the device", on_the_device, budget=no_host)

KNOWN = (STAGES[0], STAGES[3], OWN, STAGES[5], STAGES[6])

SUBJECT = ProgramSubject("mini-batch k-means", LEGACY, "label", "centroids", KNOWN)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Verify the loop, time it, write a page about it.")
    parser.add_argument("device", nargs="?", default="auto", help="auto, cuda or host")
    parser.add_argument("--bench", action="store_true", help="time each set of stages")
    parser.add_argument("--report", metavar="FILE", help="write an HTML page about it all")
    asked, console = parser.parse_args(), Console(width=140, highlight=False)
    opener, timed = partial(open_device, asked.device), None
    verified = verify(SUBJECT, opener)
    console.print(verify_table(verified), *verify_lines(verified), sep="\n")
    if asked.bench and verified.ok:
        with opener() as device:
            timed = bench(SUBJECT, cumulative_sets(KNOWN), device, program="kmeans")
        console.print(times_table(timed))
    if asked.report:
        loop_report(SUBJECT, opener, asked.report, verified=verified, timed=timed)
    sys.exit(0 if verified.ok else 1)
