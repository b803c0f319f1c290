"""What a walk-forward will do, worked out and checked before anything trains."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from onegraph.trainer.config import (
    Config,
    ConfigError,
    config_from_json,
    config_to_json,
    config_to_toml,
    override_config,
)
from onegraph.trainer.envs.build import load_features
from onegraph.trainer.market import Bars, Windows, walk_forward, walk_forward_months
from onegraph.trainer.market.bars import stamp_text
from onegraph.trainer.walkforward.errors import WalkforwardError
from onegraph.trainer.walkforward.files import write_json, write_whole

FORMAT: Final = "onegraph-walkforward-1"
PLAN: Final = "walkforward.json"

#: Fields of the config that set the dates of a single run; here each window has its own.
DATES: Final = ("train_start", "train_end", "validation_end", "test_end")

#: What may change when a walk-forward is gone on with: no finished run would be another for it.
MAY_CHANGE: Final = ("walkforward.seeds", "walkforward.workers", "walkforward.gpus")


@dataclass(frozen=True)
class RunId:
    """One run of a walk-forward: the window's number from 0, and the seed."""

    window: int
    seed: int

    def __str__(self) -> str:
        return f"window {self.window}, seed {self.seed}"

    def folder(self, root: Path) -> Path:
        """Where in the walk-forward's folder the run is."""
        return root / f"window-{self.window:03}" / f"seed-{self.seed}"


@dataclass(frozen=True, eq=False)
class Plan:
    """Windows, seeds, and the bars under them.

    Attributes:
        config: the walk-forward's config; `run_config` has that of a run.
        bars: all of them.
        bars_digest: of `bars` (`digest_of_bars`).
        months: of each window the first days (UTC) of training, validation, test, and after it.
        windows: the same as indices of bars, purged and embargoed.
    """

    config: Config
    bars: Bars
    bars_digest: str
    months: tuple[tuple[dt.date, dt.date, dt.date, dt.date], ...]
    windows: tuple[Windows, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.config.walkforward.seeds

    @property
    def runs(self) -> list[RunId]:
        """Every run, window by window."""
        return [RunId(window, seed) for window in range(len(self.windows)) for seed in self.seeds]

    def run_config(self, run: RunId, root: Path) -> Config:
        """The config of one run, which an ordinary ``onegraph train`` could read too."""
        dates = {
            f"env.market.{name}": day
            for name, day in zip(DATES, self.months[run.window], strict=True)
        }
        values = {**dates, "seed": run.seed, "run_dir": str(run.folder(root))}
        return override_config(self.config, values, f"{run}")

    def overlap(self) -> bool:
        """Whether tests share bars, as they do where a step is shorter than a test."""
        tests = [w.test for w in self.windows]
        return any(a.stop > b.start for a, b in itertools.pairwise(tests))

    def gap_bars(self) -> int:
        """Bars between tests that no test has, by an embargo or a step longer than a test."""
        tests = [w.test for w in self.windows]
        pairs = itertools.pairwise(tests)
        return sum(max(b.start - a.stop, 0) for a, b in pairs)


def make_plan(config: Config) -> Plan:
    """Read the bars, and lay out and check every window.

    Raises:
        WalkforwardError: no market, dates of a single run, a window too short to walk through.
        MarketDataError: bars that can't be read, too few months, an empty window.
    """
    if config.env.kind != "market":
        raise WalkforwardError(
            f"env.kind = {config.env.kind!r} has no bars to walk over; use env.kind = 'market'"
        )
    for name in DATES:
        if (day := getattr(config.env.market, name)) is not None:
            raise WalkforwardError(
                f"env.market.{name} = {day} is of a single run, and each window of a walk-forward"
                " has its own dates; leave it out"
            )
    bars, features = load_features(config)
    walk = config.walkforward
    lengths = (walk.train_months, walk.val_months, walk.test_months, walk.step_months)
    first = features.first_valid
    months = walk_forward_months(bars.time, *lengths, first_valid=first)
    windows = walk_forward(
        bars.time,
        *lengths,
        purge=config.env.market.purge_bars,
        embargo=config.env.market.embargo_bars,
        first_valid=first,
    )
    for number, window in enumerate(windows):
        for name in ("train", "validation", "test"):
            part: slice = getattr(window, name)
            if part.stop - part.start < 2:
                raise WalkforwardError(
                    f"window {number}: its {name} window has one bar, "
                    f"{stamp_text(int(bars.time[part.start]))}, and a trade takes two; lengthen it,"
                    " or lower env.market.purge_bars or embargo_bars"
                )
    return Plan(config, bars, digest_of_bars(bars), tuple(months), tuple(windows))


def digest_of_bars(bars: Bars) -> str:
    """SHA-256 of the times, prices and volumes."""
    found = hashlib.sha256()
    for values in (bars.time, bars.open, bars.high, bars.low, bars.close, bars.volume):
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def extents(windows: Windows, bars: Bars) -> dict[str, dict[str, Any]]:
    """Each window's first and last bar, for JSON."""
    found = {}
    for name in ("train", "validation", "test"):
        part: slice = getattr(windows, name)
        found[name] = {
            "first": stamp_text(int(bars.time[part.start])),
            "last": stamp_text(int(bars.time[part.stop - 1])),
            "start": part.start,
            "stop": part.stop,
            "bars": part.stop - part.start,
        }
    return found


# ---------------------------------------------------------------- its file


def save_plan(plan: Plan, root: Path) -> None:
    """Write the plan, and its config for people, into the walk-forward's folder."""
    content = {
        "format": FORMAT,
        "symbol": plan.bars.symbol,
        "bars": len(plan.bars),
        "bars_digest": plan.bars_digest,
        "windows": [extents(w, plan.bars) for w in plan.windows],
        "seeds": list(plan.seeds),
        "config": json.loads(config_to_json(plan.config)),
    }
    write_whole(root / "config.toml", config_to_toml(plan.config).encode())
    write_json(root / PLAN, content)


def load_plan(root: Path, overrides: dict[str, object] | None = None) -> Plan:
    """The plan of a walk-forward's folder, made anew and held against what was written.

    Args:
        root: the folder.
        overrides: by dotted field; only those of `MAY_CHANGE`.

    Raises:
        WalkforwardError: no walk-forward, a damaged file, another field than those, or the bars or
            windows are not those that it began with.
        ConfigError: a value can't be used.
        MarketDataError: the bars can't be read any more.
    """
    path = root / PLAN
    for field in overrides or {}:
        if field not in MAY_CHANGE:
            raise WalkforwardError(
                f"--set {field} with --resume {root}: finished windows would not be of one"
                f" walk-forward with the others; only {', '.join(MAY_CHANGE)} may change: start"
                " anew in another folder"
            )
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        if written["format"] != FORMAT:
            raise KeyError(FORMAT)
        text = json.dumps(written["config"])
        digest, windows = written["bars_digest"], written["windows"]
    except FileNotFoundError:
        raise WalkforwardError(
            f"{root} holds no {PLAN}; name a folder that `onegraph walkforward` made"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise WalkforwardError(
            f"{path}: this is no plan of a walk-forward ({error!r}); start anew in another folder"
        ) from None
    try:
        config = config_from_json(text, str(path))
    except ConfigError as error:
        raise WalkforwardError(f"{path}: its config can't be used: {error}") from None
    plan = make_plan(override_config(config, overrides or {}, str(path)))
    if plan.bars_digest != digest:
        raise WalkforwardError(
            f"{config.env.market.data}: the bars are not those that {root} began with (SHA-256"
            f" {plan.bars_digest[:12]}, then {digest[:12]}); put those back, or start anew in"
            " another folder"
        )
    if [extents(w, plan.bars) for w in plan.windows] != windows:
        raise WalkforwardError(
            f"{root}: its windows are not those that this version makes of its config; go on with"
            " the version that began it, or start anew in another folder"
        )
    return plan
