"""Trainers at every stage over one full replay, and their learning steps timed in turn."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onegraph.kernels.common.layout import Counter as Slot
from onegraph.kernels.device import Device
from onegraph.trainer.config import Config, load_config
from onegraph.trainer.envs.tabular import TabularEnvironment, chain
from onegraph.trainer.trainer import Progress, Trainer

LANES = 64

#: The size of the issue's table: batch 64, hidden 256, capacity 2^20, states 64 wide.
MEDIUM = {
    "learn.batch_size": 64,
    "network.hidden": [256, 256],
    "replay.capacity": 2**20,
}


def bench_config(sizes: dict[str, object]) -> Config:
    """A config of these sizes; the loop's lengths do not matter here."""
    rest = {
        "env.kind": "chain",
        "env.lanes": LANES,
        "loop.start_steps": 4096,
        "loop.epoch_steps": 1024,
        "loop.timed_steps": 8,
    }
    return load_config(None, {**rest, **sizes})


def environment(width: int = 64) -> TabularEnvironment:
    """Lanes whose observations are `width` wide."""
    return chain(LANES, seed=0, length=width)


def fill(trainer: Trainer, rng: np.random.Generator) -> None:
    """Fill the replay to the brim with random transitions and priorities."""
    shapes, state = trainer.shapes, trainer.state()
    n, width = shapes.capacity, shapes.width
    for name in ("replay_state", "replay_next_state"):
        state[name][:, :width] = rng.standard_normal((n, width), np.float32)
    state["replay_action"] = rng.integers(0, trainer.network.actions, n).astype(np.int32)
    state["replay_reward"] = rng.standard_normal(n, np.float32)
    state["replay_flags"] = (rng.random(n) < 0.01).astype(np.uint8)
    state["replay_generation"] = np.ones(n, np.uint32)
    state["replay_leaves"] = rng.random(n, np.float32) + np.float32(0.01)
    state["counters"][Slot.FILLED] = n
    trainer.restore(state, Progress(collects=shapes.slots))


def prepared(device: Device, sizes: dict[str, object], stages: frozenset[int]) -> Trainer:
    """A trainer with a full replay, warmed up and captured."""
    trainer = Trainer(bench_config(sizes), device, stages, environment=environment())
    fill(trainer, np.random.default_rng(0))
    for _ in range(8):
        trainer.learn()
    trainer.wait()
    return trainer


@dataclass(frozen=True)
class StepTimes:
    """Microseconds a step of one trainer, over rounds.

    Attributes:
        median, low, high: the median and the 10th and 90th percentile.
    """

    label: str
    median: float
    low: float
    high: float
    calls: Counter[str]
    nodes: int


def interleaved(
    labelled: Sequence[tuple[str, Trainer]], *, rounds: int, steps: int
) -> list[StepTimes]:
    """Time `steps` learning steps of each trainer in turn, `rounds` times over."""
    samples: dict[str, list[float]] = {label: [] for label, _ in labelled}
    calls: dict[str, Counter[str]] = {}
    for _ in range(rounds):
        for label, trainer in labelled:
            trainer.wait()
            before = time.perf_counter()
            for _ in range(steps):
                counts = trainer.learn()
            trainer.wait()
            samples[label].append((time.perf_counter() - before) / steps * 1e6)
            calls[label] = counts.by_kind()
    return [
        StepTimes(
            label,
            *(float(q) for q in np.percentile(samples[label], (50, 10, 90))),
            calls[label],
            sum(trainer.graph_nodes().values()),
        )
        for label, trainer in labelled
    ]


def table(times: Sequence[StepTimes], say: Callable[[str], None]) -> None:
    """Print a line a trainer, with the ratio to the first."""
    base = times[0].median
    say(f"{'stages':<22}{'median us':>10}{'10-90%':>18}{'speed-up':>9}{'nodes':>7}  device calls")
    for t in times:
        spread = f"{t.low:.1f}-{t.high:.1f}"
        calls = " ".join(f"{kind} {n}" for kind, n in sorted(t.calls.items()))
        say(
            f"{t.label:<22}{t.median:>10.1f}{spread:>18}{base / t.median:>8.1f}x"
            f"{t.nodes:>7}  {calls}"
        )
