"""What a peer of the replay alone starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onegraph.trainer.bench import BenchSubject

from ..problem import InitialState, PeerSpec, initial_of, require, spec_of


@dataclass(frozen=True)
class ReplaySpec(PeerSpec):
    """Sizes and constants; those of the networks and of the optimiser have no use here."""


@dataclass(frozen=True)
class ReplayState(InitialState):
    """Attributes:
    errors: the TD errors [B] that each step writes back.
    """

    errors: NDArray[np.float32]


class Batch(NamedTuple):
    """What was drawn: arrays of the peer's library, or of NumPy.

    A sampler alone gathers nothing: there only the first two are.
    """

    index: Any  # [B] rows
    weights: Any  # [B]
    states: Any = None  # [B, S]
    next_states: Any = None  # [B, S]
    actions: Any = None  # [B]
    returns: Any = None  # [B]
    discounts: Any = None  # [B]


def replay_problem(subject: BenchSubject, device_kind: str) -> tuple[ReplaySpec, ReplayState]:
    """What a peer of `subject`'s replay starts from, on the GPU or on the host.

    Raises:
        PeerUnavailableError: the subject asks for what no peer does.
    """
    config = subject.config
    require(
        {
            "hindsight.strategy": (config.hindsight.strategy, "none"),
            "learn.vaccine": (config.learn.vaccine, False),
            "replay.stratified": (config.replay.stratified, True),
            "replay.beta_end": (config.replay.beta_end, config.replay.beta_start),
        }
    )
    spec = ReplaySpec(**vars(spec_of(subject, device_kind)))
    return spec, ReplayState(**vars(initial_of(subject)), errors=subject.errors())
