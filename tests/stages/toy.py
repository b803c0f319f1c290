"""A step that is no DQN: a power iteration whose coordinates are picked by priority.

Each step picks a coordinate from the priority total, multiplies v by A, scales it by a schedule,
adds one at the coordinate, publishes the norm and raises the coordinate's priority. The legacy
form has every habit that the stages take away: priorities and counter on the host, uploads,
scratch allocated per step, a blocking memset, a read-back through the deprecated method.

All but the matmul is integers, or float64 rounded once, so that every form gives the same bits.
"""

from __future__ import annotations

import numpy as np

from onegraph.kernels import catalogue
from onegraph.kernels.catalogue import kernel
from onegraph.kernels.device import HostDevice
from onegraph.stages import Buffer, Fragment, Launch, Phase, Ref, Runner, StepProgram, Workspace
from onegraph.stages.program import Alloc, Copy, Free, Host, HostArrays, MatmulOp, Memset, Merge, Op

_before = set(catalogue._registry)


@kernel(per="one", prio="in i64", total="out i64", n="i32")
def toy_total(*, prio, total, n):
    total[0] = prio[:n].sum()


@kernel(per="one", total="in i64", step="in i64", pick="out i32", n="i32")
def toy_draw(*, total, step, pick, n):
    pick[0] = _pick(int(total[0]), int(step[0]), n)


@kernel(per="one", step="inout i64", scale="out f32")
def toy_count(*, step, scale):
    step[0] += 1
    scale[0] = _scale(int(step[0]))


@kernel(work="n", w="in f32", scale="in f32", pick="in i32", v="out f32", n="i32")
def toy_scale(*, w, scale, pick, v, n):
    v[:n] = w[:n] * scale[0]
    v[pick[0]] += np.float32(1)


@kernel(per="one", v="in f32", norm="out f32", n="i32")
def toy_norm(*, v, norm, n):
    norm[0] = np.float32(np.square(v[:n], dtype=np.float64).sum())


@kernel(per="one", pick="in i32", prio="inout i64")
def toy_raise(*, pick, prio):
    prio[pick[0]] += 2


KERNELS = {n: spec for n, spec in catalogue._registry.items() if n not in _before}
for _name in KERNELS:  # the conftest puts them back while a test of this folder runs
    del catalogue._registry[_name]


def _pick(total: int, step: int, n: int) -> int:
    return (total * 7 + step * step) % n


def _scale(step: int) -> np.float32:
    return np.float32(1.0 / (1.0 + step))


# ---------------------------------------------------------------- what the host does at stage 0


def draw(h: HostArrays) -> None:
    h["pick_host"][0] = _pick(
        int(h["prio_host"].sum()), int(h["step_host"][0]), h["prio_host"].size
    )


def draw_from_total(n: int):
    def run(h: HostArrays) -> None:
        h["pick_host"][0] = _pick(int(h["total_host"][0]), int(h["step_host"][0]), n)

    return run


def advance(h: HostArrays) -> None:
    h["step_host"][0] += 1
    h["scale_host"][0] = _scale(int(h["step_host"][0]))


def raise_priority(h: HostArrays) -> None:
    h["prio_host"][h["pick_host"][0]] += 2


# ---------------------------------------------------------------- the program


def matrix(n: int) -> np.ndarray:
    i = np.arange(n * n, dtype=np.float64).reshape(n, n)
    return (np.cos(i) + 1.5 * np.eye(n)).astype(np.float32)


class Toy:
    """The legacy program at size `n`, and the Parts that the stages ask for."""

    def __init__(self, n: int = 8) -> None:
        self.n = n
        self.asked: list[tuple[str, str, str]] = []
        ones = lambda: np.ones(n, np.int64)  # noqa: E731
        b = [
            Buffer("A", (n, n), "f32", initial=lambda: matrix(n), persistent=True),
            Buffer("v", (n,), "f32", initial=lambda: np.ones(n, np.float32), persistent=True),
            Buffer("w", (n,), "f32"),
            Buffer("pick", (1,), "i32"),
            Buffer("pick_host", (1,), "i32", "host"),
            Buffer("pick_scratch", (1,), "i32", transient=True),
            Buffer("prio", (n,), "i64", initial=ones, persistent=True),
            Buffer("prio_host", (n,), "i64", "host", initial=ones, persistent=True),
            Buffer("total", (1,), "i64"),
            Buffer("total_host", (1,), "i64", "host"),
            Buffer("step", (1,), "i64", persistent=True),
            Buffer("step_host", (1,), "i64", "host", persistent=True),
            Buffer("scale", (1,), "f32"),
            Buffer("scale_host", (1,), "f32", "host"),
            Buffer("norm_scratch", (1,), "f32", transient=True),
            Buffer("norm_host", (1,), "f32", "host"),
            Buffer("norm", (1,), "f32", "pinned"),
        ]
        self.buffers = {x.name: x for x in b}

    def program(self, name: str = "power") -> StepProgram:
        n = self.n
        upload = Copy(Ref("pick"), Ref("pick_host"), "htod", group="sample")
        product = (
            Memset(Ref("w"), blocking=True),
            MatmulOp(n, 1, n, Ref("A"), Ref("v"), Ref("w")),
            Launch(
                "toy_scale",
                {"w": Ref("w"), "scale": Ref("scale"), "pick": Ref("pick"), "v": Ref("v"), "n": n},
            ),
        )
        phases = (
            Phase(
                "draw",
                (
                    Host("draw", draw, ("prio_host", "step_host"), ("pick_host",), group="sample"),
                    upload,
                ),
                frozenset({"replay"}),
            ),
            Phase("count", self._group("counters", self._host_counters())),
            Phase("multiply", product),
            Phase("publish", self._group("statistics", self._statistics("to_host"))),
            Phase("idle"),
            Phase(
                "raise",
                (
                    Host(
                        "raise_priority",
                        raise_priority,
                        ("pick_host", "prio_host"),
                        ("prio_host",),
                        group="priorities",
                    ),
                ),
                frozenset({"replay"}),
            ),
        )
        return StepProgram(name, "learn", phases, tuple(self.buffers.values())).pruned()

    @staticmethod
    def _group(group: str, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        from dataclasses import replace

        return tuple(replace(op, group=group) for op in ops)

    @staticmethod
    def _host_counters() -> tuple[Op, ...]:
        return (
            Host("advance", advance, ("step_host",), ("step_host", "scale_host")),
            Copy(Ref("step"), Ref("step_host"), "htod"),
            Copy(Ref("scale"), Ref("scale_host"), "htod"),
        )

    def _statistics(self, via: str = "") -> tuple[Op, ...]:
        scratch = Ref("norm_scratch")
        return (
            Alloc("norm_scratch"),
            Memset(scratch),
            Launch("toy_norm", {"v": Ref("v"), "norm": scratch, "n": self.n}),
            Copy(Ref("norm_host"), scratch, "dtoh", via),  # type: ignore[arg-type]
            Free("norm_scratch"),
        )

    def _total(self) -> Launch:
        return Launch("toy_total", {"prio": Ref("prio"), "total": Ref("total"), "n": self.n})

    def merges(self, program: str) -> tuple[Merge, ...]:
        """Parts: no phases of this loop have kernels that do them together."""
        return ()

    def fragment(self, stage: str, program: str, group: str) -> Fragment:
        """Parts: the replacement of `group` at `stage`."""
        self.asked.append((stage, program, group))
        drawn = (
            self._total(),
            Launch(
                "toy_draw",
                {"total": Ref("total"), "step": Ref("step"), "pick": Ref("pick"), "n": self.n},
            ),
        )
        reads = ("total_host", "step_host")
        ops: tuple[Op, ...] = {
            ("gpu-replay", "sample"): (
                self._total(),
                Copy(Ref("total_host"), Ref("total"), "dtoh"),
                Host("draw_from_total", draw_from_total(self.n), reads, ("pick_host",)),
                Alloc("pick_scratch"),
                Copy(Ref("pick_scratch"), Ref("pick_host"), "htod"),
                Copy(Ref("pick"), Ref("pick_scratch"), "dtod"),
                Free("pick_scratch"),
            ),
            ("gpu-replay", "priorities"): (
                Launch("toy_raise", {"pick": Ref("pick"), "prio": Ref("prio")}),
            ),
            ("gpu-replay", "statistics"): self._statistics(),
            ("philox-per", "sample"): drawn,
            ("gpu-counters", "sample"): drawn,
            ("gpu-counters", "counters"): (
                Launch("toy_count", {"step": Ref("step"), "scale": Ref("scale")}),
            ),
            ("gpu-counters", "statistics"): (
                Launch("toy_norm", {"v": Ref("v"), "norm": Ref("norm"), "n": self.n}),
            ),
        }[stage, group]
        named = frozenset().union(*(op.reads() | op.writes() for op in ops))
        return Fragment(ops, tuple(self.buffers[b] for b in sorted(named)))


def results(workspace: Workspace) -> dict[str, bytes]:
    """What a step is for, wherever the stage keeps it, as bits."""
    found = {}
    for name, places in {
        "v": ("v",),
        "w": ("w",),
        "pick": ("pick",),
        "scale": ("scale",),
        "step": ("step",),
        "prio": ("prio", "prio_host"),
        "norm": ("norm", "norm_host"),
    }.items():
        place = next(p for p in places if p in workspace.buffers)
        found[name] = workspace.read(place).tobytes()
    return found


def trajectory(program: StepProgram, steps: int, *, timed: bool = False) -> list[dict[str, bytes]]:
    """The results after each step on a fresh host device."""
    workspace = Workspace(HostDevice())
    runner = Runner(program, workspace)
    seen = []
    for _ in range(steps):
        runner.step(timed=timed)
        seen.append(results(workspace))
    return seen


def trajectory_of_nothing(program: StepProgram) -> list[dict[str, int]]:
    """The calls of two steps after the first, for a program without the toy's buffers."""
    runner = Runner(program, Workspace(HostDevice()))
    runner.step()
    return [dict(runner.step().by_kind()) for _ in range(2)]
