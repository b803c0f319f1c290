"""What a device-resident environment gives to the `collect` program.

One kernel steps all E lanes: it reads the actions and the lanes' state, and writes the observation
acted on, the final observation (the one that the transition ends in), reward and flags; a lane
whose episode ended starts over, and its current observation is then of the new episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from onegraph.stages.program import LAUNCHING, Buffer, Op, Phase, StepProgram
from onegraph.trainer.network import padded_width


@dataclass(frozen=True)
class LaneNames:
    """Buffer names of a set of lanes; `prefix` keeps training and evaluation lanes apart."""

    prefix: str

    @property
    def obs(self) -> str:
        """[E, Sp] what the policy sees now."""
        return f"{self.prefix}_obs"

    @property
    def obs_tm1(self) -> str:
        """[E, Sp] what it saw when it acted."""
        return f"{self.prefix}_obs_tm1"

    @property
    def obs_t(self) -> str:
        """[E, Sp] where that led, before any reset."""
        return f"{self.prefix}_obs_t"

    @property
    def action(self) -> str:
        """[E] i32."""
        return f"{self.prefix}_action"

    @property
    def reward(self) -> str:
        """[E] f32."""
        return f"{self.prefix}_reward"

    @property
    def flags(self) -> str:
        """[E] u8, `layout.Flag`."""
        return f"{self.prefix}_flags"

    @property
    def episode(self) -> str:
        """[E] i64, of the transition."""
        return f"{self.prefix}_episode"

    # Of lanes that the host steps, in pinned memory.

    @property
    def host_obs(self) -> str:
        """[E, Sp] what the lanes show now."""
        return f"{self.prefix}_host_obs"

    @property
    def host_final(self) -> str:
        """[E, Sp] what they showed when an episode ended; of the other lanes not read."""
        return f"{self.prefix}_host_final"

    @property
    def host_reward(self) -> str:
        """[E] f32."""
        return f"{self.prefix}_host_reward"

    @property
    def host_flags(self) -> str:
        """[E] u8, `layout.Flag`."""
        return f"{self.prefix}_host_flags"

    @property
    def host_episode(self) -> str:
        """[E] i64, of the transition."""
        return f"{self.prefix}_host_episode"

    @property
    def host_action(self) -> str:
        """[E] i32, the copy of the actions that the host reads."""
        return f"{self.prefix}_host_action"


#: The lanes that training collects in.
TRAINING_LANES = LaneNames("env")


@dataclass(frozen=True)
class Goal:
    """Which columns of an observation say what was achieved, and which what is to be.

    The goal is reached where both are equal; the reward is then 0 and the episode terminates, and
    -1 on every other step.

    Attributes:
        achieved: first column of what was achieved.
        desired: first column of the goal.
        width: columns of either.
    """

    achieved: int
    desired: int
    width: int


class Environment(Protocol):
    """A set of lanes of one environment on the device."""

    @property
    def names(self) -> LaneNames: ...

    @property
    def lanes(self) -> int: ...

    @property
    def observation_width(self) -> int: ...

    @property
    def actions(self) -> int: ...

    @property
    def goal(self) -> Goal | None:
        """Where its observations hold a goal; ``None`` if they hold none."""
        ...

    def buffers(self) -> tuple[Buffer, ...]: ...

    def step(self) -> Op: ...

    def reset(self) -> Op: ...


@dataclass(frozen=True)
class HostArrays:
    """What the host writes of lanes that it steps, in memory that the device reads.

    Attributes:
        obs, final: float32 [E, Sp]; `final` of lanes whose episode ended.
        reward, flags, episode: float32, uint8, int64 [E].
    """

    obs: NDArray[np.float32]
    final: NDArray[np.float32]
    reward: NDArray[np.float32]
    flags: NDArray[np.uint8]
    episode: NDArray[np.int64]


@dataclass(frozen=True)
class FinishedEpisodes:
    """Episodes in the order in which they ended.

    Attributes:
        lanes: int64 [n], where they ran.
        returns: float64 [n], undiscounted.
        lengths: int64 [n], in steps.
    """

    lanes: NDArray[np.int64]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]


class HostLanes(Protocol):
    """Lanes that live on the host."""

    #: Why `state` has no lanes in it; empty if it has, or was not asked for.
    unsaved: str

    def reset(self, seeds: NDArray[np.int64], into: HostArrays) -> None:
        """Begin an episode in every lane, by one seed a lane."""
        ...

    def step(self, actions: NDArray[np.int32], into: HostArrays) -> int:
        """Do `actions` [E]; gives the number of lanes that did a step of an episode."""
        ...

    def take_finished(self) -> FinishedEpisodes:
        """The episodes that ended since the last call."""
        ...

    def state(self) -> dict[str, Any]:
        """What stepping goes on from, as plain data."""
        ...

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Go on from a state; says whether the lanes are where they were, or have to be reset."""
        ...

    def close(self) -> None:
        """Let go of the lanes."""
        ...


@runtime_checkable
class HostStepped(Protocol):
    """What an `Environment` has besides, whose lanes the host steps.

    Its ops do not step but take in what the host's lanes did. The actions have to be chosen a
    collecting step before they are done, so that the host can do them while the device learns.
    """

    def open_lanes(self) -> HostLanes:
        """The lanes themselves."""
        ...


def common_buffers(names: LaneNames, lanes: int, width: int) -> tuple[Buffer, ...]:
    """The buffers that every environment has."""
    sp = padded_width(width)
    return (
        Buffer(names.obs, (lanes, sp), "f32", persistent=True),
        Buffer(names.obs_tm1, (lanes, sp), "f32"),
        Buffer(names.obs_t, (lanes, sp), "f32"),
        Buffer(names.action, (lanes,), "i32"),
        Buffer(names.reward, (lanes,), "f32"),
        Buffer(names.flags, (lanes,), "u8"),
        Buffer(names.episode, (lanes,), "i64"),
    )


def ungraphed(op: Op) -> Op:
    """`op` from the module of what is launched outside graphs."""
    return replace(op, module="ungraphed") if isinstance(op, LAUNCHING) else op


def reset_program(environment: Environment) -> StepProgram:
    """A program of one step that starts an episode in every lane; ungraphed."""
    return _outside(environment, f"reset_{environment.names.prefix}", "reset", environment.reset())


def walk_program(environment: Environment) -> StepProgram:
    """A program that steps the lanes by the actions that stand in their buffer; ungraphed."""
    return _outside(environment, f"walk_{environment.names.prefix}", "env_step", environment.step())


def _outside(environment: Environment, name: str, phase: str, op: Op) -> StepProgram:
    phases = (Phase(phase, (ungraphed(op),)),)
    return StepProgram(name, "epoch", phases, environment.buffers()).pruned()
