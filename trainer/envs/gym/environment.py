"""An environment of gymnasium as the `collect` program sees it: buffers, and an op that takes in.

The host steps the lanes; what they show goes to the device through pinned memory that a kernel
reads (`env_receive`). The order of a run is in `onegraph.trainer.host_stepping`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.envs.base import TRAINING_LANES, HostLanes, LaneNames, common_buffers
from onegraph.trainer.envs.gym.errors import GymnasiumError
from onegraph.trainer.envs.gym.lanes import GymnasiumLanes, check_autoreset
from onegraph.trainer.envs.gym.spaces import (
    Actions,
    Observations,
    read_action_space,
    read_observation_space,
)
from onegraph.trainer.network import padded_width

#: Makes a vector environment of so many lanes.
Opener = Callable[[int], Any]


@dataclass(frozen=True)
class GymnasiumEnvironment:
    """E lanes of an environment of gymnasium.

    Attributes:
        id: names it in messages.
        observations, choices: how its spaces are read.
        open_vector: gives the vector environment that training steps.
        fresh: makes vector environments for evaluation; ``None`` if there is no way to.
    """

    id: str
    observations: Observations
    choices: Actions
    lanes: int
    seed: int
    open_vector: Opener = field(compare=False, repr=False)
    fresh: Opener | None = field(default=None, compare=False, repr=False)
    names: LaneNames = TRAINING_LANES

    @property
    def observation_width(self) -> int:
        return self.observations.width

    @property
    def actions(self) -> int:
        return self.choices.count

    @property
    def goal(self) -> None:
        """A Box or a state holds no goal that we know of."""
        return

    def for_evaluation(self, lanes: int, prefix: str) -> GymnasiumEnvironment:
        """Other lanes, made anew.

        Raises:
            GymnasiumError: there is no way to make more than the given vector environment.
        """
        if self.fresh is None:
            raise GymnasiumError(
                f"{self.id}: a vector environment was given, and no way to make others for"
                " evaluation; give `evaluation`, a function of the number of lanes"
            )
        return replace(self, lanes=lanes, open_vector=self.fresh, names=LaneNames(prefix))

    def open_lanes(self) -> HostLanes:
        """The lanes themselves, for the host to step."""
        return GymnasiumLanes(
            self.open_vector(self.lanes), self.id, self.lanes, self.observations, self.choices
        )

    def buffers(self) -> tuple[Buffer, ...]:
        """Lanes, and the pinned memory that the host writes what they show to.

        The actions are state: they are chosen in one collecting step and done before the next.
        """
        names, e = self.names, self.lanes
        wide = (e, padded_width(self.observation_width))
        common = common_buffers(names, e, self.observation_width)
        return (
            *(replace(b, persistent=True) if b.name == names.action else b for b in common),
            Buffer(names.host_obs, wide, "f32", "pinned"),
            Buffer(names.host_final, wide, "f32", "pinned"),
            Buffer(names.host_reward, (e,), "f32", "pinned"),
            Buffer(names.host_flags, (e,), "u8", "pinned"),
            Buffer(names.host_episode, (e,), "i64", "pinned"),
        )

    def _op(self, *, reset: bool) -> Op:
        names = self.names
        return Launch(
            "env_receive",
            {
                "host_obs": Ref(names.host_obs),
                "host_final": Ref(names.host_final),
                "host_reward": Ref(names.host_reward),
                "host_flags": Ref(names.host_flags),
                "host_episode": Ref(names.host_episode),
                "obs": Ref(names.obs),
                "obs_tm1": Ref(names.obs_tm1),
                "obs_t": Ref(names.obs_t),
                "reward": Ref(names.reward),
                "flags": Ref(names.flags),
                "episode": Ref(names.episode),
                "lanes": self.lanes,
                "padded": padded_width(self.observation_width),
                "reset": int(reset),
            },
        )

    def step(self) -> Op:
        """Take in what the lanes did."""
        return self._op(reset=False)

    def reset(self) -> Op:
        """Take in what the lanes show at their start."""
        return self._op(reset=True)


def describe(
    envs: Any,
    name: str,
    *,
    lanes: int,
    seed: int,
    open_vector: Opener,
    fresh: Opener | None,
) -> GymnasiumEnvironment:
    """The environment whose lanes are like those of the vector environment `envs`.

    Raises:
        GymnasiumError: spaces that the learner does not take, or lanes that nothing resets.
    """
    check_autoreset(envs, name)
    return GymnasiumEnvironment(
        id=name,
        observations=read_observation_space(envs.single_observation_space, name),
        choices=read_action_space(envs.single_action_space, name),
        lanes=lanes,
        seed=seed,
        open_vector=open_vector,
        fresh=fresh,
    )


def over_vector_environment(
    envs: Any, seed: int, evaluation: Opener | None = None
) -> GymnasiumEnvironment:
    """The lanes of a vector environment that you made, for `Trainer(environment=...)`.

    Args:
        envs: a `gymnasium.vector.VectorEnv`, wrapped as you like; the trainer closes it.
        seed: of the lanes' first reset.
        evaluation: makes a vector environment of so many lanes to evaluate in; without it there is
            no validation score.

    Raises:
        GymnasiumError: spaces that the learner does not take, or autoreset is disabled.
    """
    spec = getattr(envs, "spec", None)
    name = getattr(spec, "id", None) or type(envs.unwrapped).__name__

    def given(lanes: int) -> Any:
        del lanes  # it has those that it has
        return envs

    return describe(
        envs, name, lanes=int(envs.num_envs), seed=seed, open_vector=given, fresh=evaluation
    )
