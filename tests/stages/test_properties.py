"""Wrapping any program of graphable ops in graphs changes no bit of any buffer."""

from dataclasses import replace

import numpy as np
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.kernels.device import HostDevice
from onegraph.stages import (
    Buffer,
    GraphLaunch,
    Launch,
    Phase,
    Ref,
    Runner,
    StepProgram,
    Workspace,
    s3_phase_events,
    s5_child_graphs,
    s6_parent_graph,
)
from onegraph.stages.program import Branches, Copy, MatmulOp, Memset, Op, ProgramError

NAMES = ("a", "b", "c")
SIZE = 4


def start(name: str) -> np.ndarray:
    return np.cos(np.arange(SIZE) + ord(name)).astype(np.float32)


BUFFERS = (
    *(Buffer(n, (SIZE,), "f32", initial=lambda n=n: start(n)) for n in NAMES),
    Buffer("scale", (1,), "f32"),
    Buffer("step", (1,), "i64"),
    Buffer("pick", (1,), "i32"),
)

names = st.sampled_from(NAMES)


def windows(size: int) -> st.SearchStrategy[Ref]:
    return st.builds(Ref, names, st.integers(0, SIZE - size), st.just(size))


@st.composite
def ops(draw: st.DrawFn) -> Op:
    kind = draw(st.sampled_from(["memset", "copy", "matmul", "scale", "count"]))
    if kind == "memset":
        return Memset(draw(windows(draw(st.integers(1, SIZE)))))
    if kind == "count":
        return Launch("toy_count", {"step": Ref("step"), "scale": Ref("scale")})
    first, second = draw(st.permutations(NAMES))[:2]  # no op reads what it writes
    if kind == "copy":
        size = draw(st.integers(1, SIZE))
        offset = st.integers(0, SIZE - size)
        return Copy(Ref(first, draw(offset), size), Ref(second, draw(offset), size), "dtod")
    if kind == "matmul":
        return MatmulOp(2, 2, 2, Ref(second), Ref(second), Ref(first), trans_b=draw(st.booleans()))
    w, v = Ref(second), Ref(first)
    return Launch(
        "toy_scale", {"w": w, "scale": Ref("scale"), "pick": Ref("pick"), "v": v, "n": SIZE}
    )


@st.composite
def bodies(draw: st.DrawFn) -> list[Op]:
    """Ops of a phase, or branches where they hold together."""
    body = draw(st.lists(ops(), max_size=4))
    at = draw(st.integers(1, max(1, len(body) - 1)))
    try:
        return [Branches((tuple(body[:at]), tuple(body[at:])))]
    except ProgramError:
        return body


programs = st.lists(bodies(), min_size=1, max_size=4).map(
    lambda phases: StepProgram(
        "random",
        "learn",
        tuple(Phase(f"p{i}", tuple(body)) for i, body in enumerate(phases)),
        BUFFERS,
    )
)


def contents(program: StepProgram, *, timed: bool) -> list[dict[str, bytes]]:
    workspace = Workspace(HostDevice())
    runner = Runner(program, workspace)
    seen = []
    with np.errstate(all="ignore"):
        for _ in range(3):
            counts = runner.step(timed=timed)
            seen.append({b.name: workspace.read(b.name).tobytes() for b in BUFFERS})
    assert counts.counts == program.calls(timed=timed)
    return seen


@settings(max_examples=40, deadline=None)
@given(programs, st.booleans(), st.booleans())
def test_graphs_change_no_bit(program: StepProgram, events: bool, timed: bool) -> None:
    parts = toy.Toy()
    plain = contents(program, timed=timed)
    if events:
        program = s3_phase_events.rewrite(program, parts)
    children = s5_child_graphs.rewrite(program, parts)
    parent = s6_parent_graph.rewrite(children, parts)
    assert contents(program, timed=timed) == plain
    assert contents(children, timed=timed) == plain
    assert contents(parent, timed=timed) == plain
    assert sum(parent.calls().values()) == 1
    assert contents(swapped(parent), timed=timed) == plain


def swapped(program: StepProgram) -> StepProgram:
    """The program with the branches of each fork in the other order."""

    def turned(op: Op) -> Op:
        if isinstance(op, Branches):
            return replace(op, branches=op.branches[::-1])
        return replace(op, body=tuple(map(turned, op.body))) if isinstance(op, GraphLaunch) else op

    return replace(
        program, phases=tuple(replace(p, ops=tuple(map(turned, p.ops))) for p in program.phases)
    )
