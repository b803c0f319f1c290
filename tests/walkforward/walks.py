"""Small walk-forwards that the tests share: a market of days, and how one is run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from onegraph.trainer.config import Config, load_config
from onegraph.trainer.market import Bars
from onegraph.trainer.walkforward.plan import make_plan, save_plan
from onegraph.trainer.walkforward.result import read_result
from onegraph.trainer.walkforward.schedule import one_by_one
from onegraph.trainer.walkforward.summary import summarise

#: 20 learning steps in 4 epochs, on 4 lanes, over two months of training.
TINY: dict[str, object] = {
    "device": "host",
    "env.lanes": 4,
    "env.max_episode_steps": 20,
    "env.market.purge_bars": 2,
    "network.hidden": [8],
    "replay.capacity": 200,
    "learn.batch_size": 8,
    "learn.lr.start": 1e-2,
    "loop.start_steps": 32,
    "loop.epoch_steps": 5,
    "loop.timed_steps": 0,
    "loop.total_env_steps": 32 + 4 * 19,
    "walkforward.train_months": 2,
    "walkforward.val_months": 1,
    "walkforward.test_months": 1,
    "walkforward.step_months": 1,
    "walkforward.seeds": 2,
}


def write_days(path: Path, *, last: str = "2020-06-01", change=lambda days, prices: prices) -> Path:
    """A CSV of bars for each day from 2020-01-01 up to, and without, `last`."""
    days = np.arange("2020-01-01", last, dtype="datetime64[D]")
    rng = np.random.default_rng(5)
    close = 100 * np.exp(np.cumsum(0.01 * rng.standard_normal(len(days))))
    opened = np.concatenate([[100.0], close[:-1]]) * (1 + 0.002 * rng.standard_normal(len(days)))
    close, opened = change(days, close), change(days, opened)
    lines = ["Date,Open,High,Low,Close,Volume"]
    for day, o, c in zip(days, opened, close, strict=True):
        lines.append(f"{day},{o:.4f},{max(o, c) + 0.5:.4f},{min(o, c) - 0.5:.4f},{c:.4f},1000")
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny(data: Path | str, **changes: object) -> Config:
    """The small walk-forward: 2 windows x 2 seeds, tested on April and on May."""
    values = {name.replace("__", "."): value for name, value in changes.items()}
    return load_config("demo", TINY | {"env.market.data": str(data)} | values)


def never() -> bool:
    return False


class Heard:
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.shares, self.done, self.failures = {}, [], {}

    def progress(self, run, done, note):
        self.shares.setdefault(run, []).append(done)

    def finished(self, run):
        self.done.append(run)

    def failed(self, run, cause):
        self.failures[run] = cause


def walk(config: Config, root: Path, stop=never, expected=()):
    """Plan, save, and run one by one in this process; gives the plan and what was heard."""
    plan, heard = make_plan(config), Heard()
    save_plan(plan, root)
    missing = [r for r in plan.runs if read_result(root, r, plan.bars_digest) is None]
    heard.whole = one_by_one(plan, root, missing, heard, stop, expected)
    return plan, heard


def results(plan, root):
    return {run: read_result(root, run, plan.bars_digest) for run in plan.runs}


def summary_of(plan, root):
    return summarise(plan, results(plan, root))


def kept(root: Path):
    """What may not depend on how, where and when it ran, by run."""
    found = {}
    for path in sorted(root.glob("window-*/seed-*/result.json")):
        record = json.loads(path.read_text())
        record.pop("seconds")
        found[str(path.parent.relative_to(root))] = record
    return found


def bars_of(close, opened=None, first="2020-01-01") -> Bars:
    """Daily bars with these closes."""
    close = np.asarray(close, np.float64)
    opened = close if opened is None else np.asarray(opened, np.float64)
    days = np.datetime64(first, "D") + np.arange(len(close))
    high, low = np.maximum(opened, close), np.minimum(opened, close)
    time = days.astype("datetime64[ns]").astype(np.int64)
    return Bars("X", time, opened, high, low, close, np.ones(len(close)))
