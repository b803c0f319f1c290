"""Which spaces of gymnasium the learner takes, and how their values become its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onegraph.trainer.envs.gym.errors import GymnasiumError, gymnasium

#: Whole numbers up to here are exact in float32, which the replay stores.
EXACT = 2**24


class Observations(Protocol):
    """From a lane's observations to its rows of float32."""

    @property
    def width(self) -> int:
        """Columns of a row, S."""
        ...

    def put(self, batch: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write the observations [n] of a vector environment into the first S columns of `out`."""
        ...


@dataclass(frozen=True)
class BoxObservations:
    """A vector of numbers: as it is, rounded to float32."""

    width: int

    def put(self, batch: NDArray[Any], out: NDArray[np.float32]) -> None:
        found = np.asarray(batch)
        if found.shape != (len(out), self.width):
            raise GymnasiumError(
                f"observations of shape {found.shape} came from {len(out)} lanes of a Box of shape"
                f" ({self.width},); the environment does not keep to its observation_space"
            )
        with np.errstate(over="ignore"):  # an infinity marks the row invalid where it is stored
            out[:, : self.width] = found


@dataclass(frozen=True)
class DiscreteObservations:
    """One of `width` states, from `start` on: one-hot."""

    width: int
    start: int

    def put(self, batch: NDArray[Any], out: NDArray[np.float32]) -> None:
        states = np.asarray(batch, np.int64).reshape(-1) - self.start
        strange = (states < 0) | (states >= self.width)
        if strange.any():
            lane = int(np.argmax(strange))
            raise GymnasiumError(
                f"lane {lane} observes {int(states[lane]) + self.start}, and its space has"
                f" {self.start} to {self.start + self.width - 1}; the environment does not keep to"
                " its observation_space"
            )
        out[:, : self.width] = 0.0
        out[np.arange(len(states)), states] = 1.0


@dataclass(frozen=True)
class Actions:
    """One of `count` actions; the environment counts them from `start` on."""

    count: int
    start: int


def read_observation_space(space: Any, name: str) -> Observations:
    """How the observations of `name` are stored.

    Raises:
        GymnasiumError: a space that the learner does not take, with what would help.
    """
    spaces = gymnasium().spaces
    if isinstance(space, spaces.Discrete):
        return DiscreteObservations(int(space.n), int(space.start))
    if not isinstance(space, spaces.Box):
        raise GymnasiumError(
            f"{name}: its observations are {space}; the learner takes a Box of one dimension or"
            " Discrete states. For Dict and Tuple gymnasium.wrappers.FlattenObservation makes a Box"
        )
    if len(space.shape) != 1 or space.shape[0] < 1:
        what = "images or stacked rows" if len(space.shape) > 1 else "no row of numbers"
        raise GymnasiumError(
            f"{name}: its observations have the shape {tuple(space.shape)}, {what}; the learner"
            " takes a Box of one dimension (gymnasium.wrappers.FlattenObservation makes one, and"
            " there are no convolutions here)"
        )
    if space.dtype.kind == "f" and space.dtype.itemsize <= 8:
        return BoxObservations(int(space.shape[0]))
    if space.dtype.kind not in "iub":
        raise GymnasiumError(
            f"{name}: its observations are of dtype {space.dtype}; use floats up to float64, or"
            " whole numbers"
        )
    largest = max(abs(int(np.min(space.low))), abs(int(np.max(space.high))))
    if largest > EXACT:
        raise GymnasiumError(
            f"{name}: its observations are {space.dtype} up to {largest:.3g}, and float32 tells"
            f" whole numbers apart up to {EXACT:,}; narrow the space's bounds, or scale the"
            " observations (gymnasium.wrappers.TransformObservation)"
        )
    return BoxObservations(int(space.shape[0]))


def read_action_space(space: Any, name: str) -> Actions:
    """The actions of `name`.

    Raises:
        GymnasiumError: a space that a DQN has no values for.
    """
    spaces = gymnasium().spaces
    if isinstance(space, spaces.Discrete):
        return Actions(int(space.n), int(space.start))
    why = {
        spaces.Box: "continuous, and a DQN values each action by itself; discretise them",
        spaces.MultiDiscrete: "several choices at once; make one Discrete of their combinations",
    }
    reason = next((text for kind, text in why.items() if isinstance(space, kind)), "no Discrete")
    raise GymnasiumError(f"{name}: its actions are {space}: {reason} (a wrapper's action_space)")
