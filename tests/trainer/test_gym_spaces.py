"""Which environments of gymnasium are taken, how they are read, and what is said of the others."""

import builtins
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scripted_envs import TERMINATED, Script, Scripted
from trainer.setups import gym, make

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.device import HostDevice
from onegraph.trainer.config import ConfigError, load_config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.envs.gym import GymnasiumError, over_vector_environment
from onegraph.trainer.envs.gym.spaces import (
    read_action_space,
    read_observation_space,
)
from onegraph.trainer.trainer import Trainer, TrainerError


def rows(space: spaces.Space, batch: object, padded: int = 8) -> list[list[float]]:
    reader = read_observation_space(space, "X")
    out = np.zeros((len(batch), padded), np.float32)
    reader.put(np.asarray(batch), out)
    return out[:, : reader.width].tolist()


def test_a_reward_beyond_float32_makes_its_row_invalid():
    class Rich(Scripted):
        def step(self, action):
            seen, _, *rest = super().step(action)
            return seen, 1e300, *rest

    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: Rich(0, [(5, TERMINATED)])],
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    environment = over_vector_environment(envs, seed=0)
    trainer = make(HostDevice(), gym(env__lanes=1), "all", environment)
    trainer.collect()
    assert trainer.workspace.read("replay_flags")[0] == Flag.INVALID
    trainer.close()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64])
def test_a_box_is_taken_as_it_is(dtype):
    space = spaces.Box(0, 100, (3,), dtype)
    assert rows(space, np.array([[1, 2, 3], [4, 5, 100]], dtype)) == [[1, 2, 3], [4, 5, 100]]


def test_float64_beyond_float32_becomes_infinite_without_a_warning():
    space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    assert rows(space, [[1e300, -1.0]]) == [[np.inf, -1.0]]


def test_discrete_states_are_one_hot_from_their_start():
    assert rows(spaces.Discrete(3), [0, 2]) == [[1, 0, 0], [0, 0, 1]]
    assert rows(spaces.Discrete(3, start=5), [6, 5]) == [[0, 1, 0], [1, 0, 0]]
    assert rows(spaces.Discrete(2, start=-1), [-1, 0]) == [[1, 0], [0, 1]]


def test_what_was_hot_before_is_not_any_more():
    reader = read_observation_space(spaces.Discrete(3), "X")
    out = np.zeros((2, 8), np.float32)
    reader.put(np.array([0, 1]), out)
    reader.put(np.array([2, 1]), out)
    assert out[:, :3].tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(("start", "state"), [(0, 3), (0, -1), (5, 4), (5, 8)])
def test_a_state_outside_its_space_is_said_by_lane(start, state):
    with pytest.raises(
        GymnasiumError, match=rf"lane 1 observes {state}, .* {start} to {start + 2}"
    ):
        rows(spaces.Discrete(3, start=start), [start, state])


BOX = spaces.Box(0, 1, (2,))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict({"a": BOX}), "FlattenObservation"),
        (spaces.Tuple([BOX, BOX]), "FlattenObservation"),
        (spaces.MultiBinary(4), "MultiBinary.*a Box of one dimension or Discrete"),
        (spaces.MultiDiscrete([2, 3]), "MultiDiscrete"),
        (spaces.Text(3), "Text"),
        (spaces.Box(0, 255, (84, 84), np.uint8), "images or stacked rows"),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), r"\(84, 84, 3\), images"),
        (spaces.Box(-1, 1, (4, 7)), "stacked rows"),
        (spaces.Box(-1, 1, ()), "no row of numbers"),
        (spaces.Box(-(2**60), 2**60, (2,), np.int64), "int64 up to 1.15e.18.*narrow"),
    ],
)
def test_observations_that_are_not_taken(space, words):
    with pytest.raises(GymnasiumError, match=f"X: its observations .*{words}"):
        read_observation_space(space, "X")


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-1, 1, (2,)), "continuous.*discretise"),
        (spaces.MultiDiscrete([2, 3]), "several choices.*one Discrete"),
        (spaces.MultiBinary(2), "no Discrete"),
        (spaces.Dict({"a": spaces.Discrete(2)}), "no Discrete"),
    ],
)
def test_actions_that_are_not_taken(space, words):
    with pytest.raises(GymnasiumError, match=f"X: its actions are .*{words}"):
        read_action_space(space, "X")


def test_actions_are_counted_from_their_start():
    actions = read_action_space(spaces.Discrete(4, start=-2), "X")
    assert (actions.count, actions.start) == (4, -2)


# ---------------------------------------------------------------- making


def refused(**changes: object) -> str:
    with pytest.raises(GymnasiumError) as caught:
        build_environment(gym(**changes))
    return str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("CartPole-v9", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPol-v1", "CartPole-v1"),
    ],
)
def test_an_id_that_does_not_exist_gets_its_neighbours(wrong, right):
    assert f"env.id = {wrong!r} is not registered" in refused(env__id=wrong)
    assert right in refused(env__id=wrong)


def test_an_id_like_no_other_says_how_other_packages_are_named():
    assert "'module:Name-v0'" in refused(env__id="Zzzzqqqq-v77")


def test_a_module_that_is_not_there_is_named():
    message = refused(env__id="no_such_package:Thing-v0")
    assert "no_such_package" in message
    assert "install" in message


def test_arguments_that_it_does_not_take_are_shown():
    message = refused(env__id="FrozenLake-v1", env__kwargs={"slippery": True})
    assert "{'slippery': True}" in message
    assert "unexpected keyword argument" in message


def test_arguments_reach_the_environment():
    environment, _ = build_environment(
        gym(env__id="FrozenLake-v1", env__kwargs={"map_name": "8x8"})
    )
    assert environment.observation_width == 64


def test_a_limit_of_steps_reaches_the_environment():
    trainer = make(HostDevice(), gym(env__max_episode_steps=3))
    for _ in range(6):
        trainer.collect()
    assert trainer.take_finished().lengths.tolist() == [3] * 8
    trainer.close()


def test_an_id_without_a_vector_environment_says_so():
    assert "vector entry point" in refused(
        env__id="Acrobot-v1", env__vectorization="vector_entry_point"
    )


def test_a_pendulum_is_refused_by_name():
    assert refused(env__id="Pendulum-v1").startswith("Pendulum-v1: its actions are Box")


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "gymnasium":
            raise ModuleNotFoundError("No module named 'gymnasium'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "gymnasium")
    assert "pip install 'onegraph[gym]'" in refused()


def test_a_config_needs_an_id_and_no_other_kind_may_have_one():
    with pytest.raises(ConfigError, match=r"env\.id = \"\": names no environment"):
        load_config(None, {"env.kind": "gymnasium"})
    for field, value in (("id", "X-v0"), ("kwargs.a", 1)):
        with pytest.raises(ConfigError, match=r"is read when env\.kind is gymnasium"):
            load_config("chain", {f"env.{field}": value})
    with pytest.raises(ConfigError, match="use a table"):
        gym(env__kwargs=3)


class OneArray(gymnasium.Env):
    """Counts to 2 in the array that it always gives, and ends there."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.seen = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen[0] = 0
        return self.seen, {}

    def step(self, action):
        self.seen += 1
        return self.seen, 1.0, bool(self.seen[0] == 2), False, {}


@pytest.mark.filterwarnings("ignore:.*share an object:UserWarning")
def test_a_final_observation_survives_a_reset_that_writes_over_it():
    gymnasium.register("OneArray-v0", OneArray)
    try:
        trainer = make(HostDevice(), gym(env__id="OneArray-v0"))
    finally:
        del gymnasium.registry["OneArray-v0"]
    for _ in range(4):
        trainer.collect()
    rows = trainer.workspace.read("replay_next_state")[:16, 0].reshape(4, 4)
    assert rows[:, 0].tolist() == [1, 2, 1, 2]
    trainer.close()


def test_observations_of_another_shape_are_said():
    reader = read_observation_space(spaces.Box(0, 1, (3,)), "X")
    with pytest.raises(GymnasiumError, match=r"shape \(2, 4\) came from 2 lanes of .* \(3,\)"):
        reader.put(np.zeros((2, 4)), np.zeros((2, 8), np.float32))


# ---------------------------------------------------------------- given vector environments


def test_a_vector_environment_of_ones_own_is_trained_on():
    envs = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=3,
        vectorization_mode="sync",
        wrappers=[gymnasium.wrappers.TimeAwareObservation],
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    environment = over_vector_environment(envs, seed=1)
    config = gym(env__lanes=3, replay__capacity=99)
    trainer = make(HostDevice(), config, "all", environment)
    assert trainer.network.observation_width == 5
    for _ in range(30):
        trainer.collect()
    trainer.learn()
    trainer.close()
    with pytest.raises(GymnasiumError, match="give `evaluation`"):
        environment.for_evaluation(2, "x")


def test_lanes_of_ones_own_have_to_be_those_of_the_config():
    script = Script([[(2, TERMINATED)]])
    with pytest.raises(TrainerError, match=r"the environment has 1 lanes, env\.lanes is 4"):
        Trainer(gym(), HostDevice(), frozenset(), environment=script.environment())


def test_what_the_environment_raises_says_in_which_step():
    class Broken(Scripted):
        def step(self, action):
            if self.at == 2:
                raise ZeroDivisionError("the bug in it")
            return super().step(action)

    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: Broken(0, [(5, TERMINATED)])],
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    config = gym(env__lanes=1)
    trainer = make(HostDevice(), config, "all", over_vector_environment(envs, seed=0))
    trainer.collect()
    trainer.collect()
    with pytest.raises(ZeroDivisionError, match="the bug") as caught:
        trainer.collect()
    assert caught.value.__notes__ == ["in vector step 2 of SyncVectorEnv"]
    assert trainer.rows == 2
    trainer.close()
