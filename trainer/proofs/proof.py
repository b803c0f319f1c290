"""A learning proof as data: a shipped config, what is measured of the policy, and targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from onegraph.trainer.config import Config, load_config
from onegraph.trainer.loop import EpochSummary
from onegraph.trainer.trainer import Trainer

#: Figures of a finished trainer by name.
Figures = dict[str, float]

Sense = Literal["at least", "at most", "within"]


@dataclass(frozen=True)
class Target:
    """What a figure has to be.

    Attributes:
        figure: its name among those that are measured.
        value: the right value, or the bound.
        sense: ``within`` means at most `tolerance` away from `value`.
        tolerance: in the unit of `value`.
    """

    figure: str
    value: float
    sense: Sense
    tolerance: float = 0.0

    def met(self, reached: float) -> bool:
        """Whether `reached` is good enough; a figure that is not finite never is."""
        if not math.isfinite(reached):
            return False
        match self.sense:
            case "at least":
                return reached >= self.value
            case "at most":
                return reached <= self.value
            case "within":
                return abs(reached - self.value) <= self.tolerance

    def text(self) -> str:
        """Such as ``>= 475`` or ``100 ± 0.1``."""
        match self.sense:
            case "at least":
                return f">= {self.value:g}"
            case "at most":
                return f"<= {self.value:g}"
            case "within":
                return f"{self.value:g} ± {self.tolerance:g}"


@dataclass(frozen=True)
class Needed:
    """A package that a proof needs, and the extra that brings it."""

    package: str
    extra: str


def no_point(trainer: Trainer, summary: EpochSummary) -> float | None:
    """Measure what the proof measures, also for the curve."""
    del trainer, summary
    return None


@dataclass(frozen=True)
class Proof:
    """One row of the table of proofs.

    Attributes:
        name: names it on the command line, and its folder.
        title: what is learned, for people.
        config: a shipped config.
        measure: figures of a finished trainer.
        targets: each has to be met; the first one's figure is what the curve shows.
        source: where the right values come from.
        overrides: of the config, by dotted field.
        seeds: those that are run where no others are asked for.
        needs: packages without which it can't be run.
        point: the curve's value at an epoch's end, where the measurement would be too long;
            ``None`` from it means the measurement.
    """

    name: str
    title: str
    config: str
    measure: Callable[[Trainer], Figures]
    targets: tuple[Target, ...]
    source: str
    overrides: Mapping[str, object] = field(default_factory=dict)
    seeds: tuple[int, ...] = (1, 2, 3)
    needs: tuple[Needed, ...] = ()
    point: Callable[[Trainer, EpochSummary], float | None] = no_point

    @property
    def main(self) -> Target:
        """The target that the curve is drawn against."""
        return self.targets[0]

    def missing(self) -> tuple[Needed, ...]:
        """What of `needs` is not installed."""
        return tuple(need for need in self.needs if find_spec(need.package) is None)

    def settings(self, seed: int, device: str, more: Mapping[str, object]) -> Config:
        """The config of a run of it.

        Raises:
            ConfigError: `more` has a field that does not exist, or a value that can't be used.
        """
        fixed = {"seed": seed, "device": device}
        return load_config(self.config, {**self.overrides, **more, **fixed})
