"""What may change in a config while its trainer runs, and what may not."""

from __future__ import annotations

from collections.abc import Mapping

from onegraph.trainer.config import Config

#: Fields that a running trainer is bound to, with the reason.
FIXED: Mapping[str, str] = {
    "seed": "it is the key of every random stream",
    "stages": "the trainer's stages were chosen when it was made",
    "device": "the state lies on the device that it was made on",
    "preset": "it says which parts the learner has",
    "offline": "the rows that it learns from were loaded when it was made",
    "env": "the lanes are in the middle of their episodes",
    "replay.capacity": "the replay's rows lie in a ring of this length",
    "replay.memory_cap_mb": "the replay has been allocated",
    "loop.epoch_steps": "it is the length of the statistics' ring",
}


def _value(config: Config, field: str) -> object:
    value: object = config
    for name in field.split("."):
        value = getattr(value, name)
    return value


def refused_change(before: Config, after: Config) -> str:
    """Why a trainer of `before` can't go on with `after`; empty if it can."""
    for field, why in FIXED.items():
        old, new = _value(before, field), _value(after, field)
        if old != new:
            return (
                f"{field} can't change from {old!r} to {new!r} while the trainer runs: {why}; make"
                " a new trainer for it"
            )
    return ""
