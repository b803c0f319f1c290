"""Random ops over a few small buffers, and what a program of them leaves there."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from onegraph.kernels.device import HostDevice
from onegraph.stages import Buffer, Launch, Ref, Runner, StepProgram, Workspace
from onegraph.stages.program import Copy, MatmulOp, Memset, Op

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
    kind = draw(st.sampled_from(["memset", "copy", "matmul", "row", "scale", "count"]))
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
    if kind == "row":  # one of two that are a product of two rows
        at = draw(st.sampled_from([0, 2]))
        return MatmulOp(1, 2, 2, Ref(second, at, 2), Ref(second), Ref(first, at, 2))
    w, v = Ref(second), Ref(first)
    return Launch(
        "toy_scale", {"w": w, "scale": Ref("scale"), "pick": Ref("pick"), "v": v, "n": SIZE}
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
