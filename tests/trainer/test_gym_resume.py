"""Lanes in checkpoints: what is written down, what is not, and how a run goes on without."""

import json
import zlib
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_envs import TERMINATED, TRUNCATED, Scripted
from trainer.setups import end_of, fill, gym, make, steps

from onegraph.kernels.common.layout import Counter, Flag
from onegraph.kernels.device import HostDevice
from onegraph.trainer.checkpoint import load_checkpoint, save_checkpoint
from onegraph.trainer.envs.gym import GymnasiumError, over_vector_environment
from onegraph.trainer.envs.gym.make import Registered
from onegraph.trainer.envs.gym.snapshot import (
    SnapshotError,
    decoded,
    encoded,
    lanes_state,
    put_lanes_state,
)
from onegraph.trainer.host_stepping import EVALUATION, TRAINING, lane_seeds
from onegraph.trainer.trainer import HOST_LANES, TrainerError

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value):
    back = decoded(encoded(value))
    assert back == value
    assert repr(back) == repr(value)  # a tuple is no list, a 1 no True


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2],
        np.array([np.nan, -0.0, np.inf], np.float32),
        np.array([[b"S", b"F"]]),
        np.array("SFF"),
        np.zeros((0, 4)),
        np.array(True),
    ],
)
def test_arrays_come_back_bit_for_bit(array):
    back = decoded(encoded({"a": array}))["a"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == np.ascontiguousarray(array).tobytes()
    assert back.flags.writeable


def test_numbers_of_numpy_keep_their_type():
    for value in (np.float32(0.1), np.int64(-3), np.bool_(True)):
        back = decoded(encoded(value))
        assert type(back) is type(value)
        assert back == value


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_generators_go_on_where_they_were(bits):
    generator = np.random.Generator(bits(3))
    generator.random(5)
    other = decoded(encoded([generator]))[0]
    assert other.random(4).tolist() == generator.random(4).tolist()
    assert other.integers(9, size=3).tolist() == generator.integers(9, size=3).tolist()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": object()}, r"state\['a'\] is a object"),
        ([1, {2}], r"state\[1\] is a set"),
        (np.array([object()]), "array of object"),
        (lambda: 0, "is a function"),
        ({"a": (shared := [1]), "b": shared}, r"state\['b'\] is an object that another"),
        ((table := np.zeros(4), table[:2]), r"state\[1\] is an object that another"),
    ],
)
def test_what_is_no_plain_data_is_named(value, words):
    with pytest.raises(SnapshotError, match=words):
        encoded(value)


@pytest.mark.parametrize(
    "text", ["", "[]", '["what", 1]', '["generator", ["dict", []]]', '["array", "|O", [1], "AAAA"]']
)
def test_bytes_of_something_else_are_refused(text):
    for data in (text.encode(), zlib.compress(text.encode())):
        with pytest.raises(SnapshotError, match="damaged"):
            decoded(np.frombuffer(data, np.uint8))


def test_no_code_is_run_by_reading_lanes():
    """A generator's name is looked up in a list, and nothing else is a name."""
    state = ["dict", [["bit_generator", "seed"], ["state", 1]]]
    data = zlib.compress(json.dumps(["generator", state]).encode())
    with pytest.raises(SnapshotError, match="no bit generator 'seed'"):
        decoded(np.frombuffer(data, np.uint8))


def test_lanes_of_another_environment_are_refused():
    cart, frozen = Registered("CartPole-v1"), Registered("FrozenLake-v1")
    saved = lanes_state(cart(2))
    with pytest.raises(SnapshotError, match=r"CartPoleEnv, these are .*FrozenLakeEnv"):
        put_lanes_state(frozen(2), saved)
    with pytest.raises(SnapshotError, match="2 lanes in turn"):
        put_lanes_state(cart(3), saved)
    own = Registered("CartPole-v1", vectorization="vector_entry_point")
    with pytest.raises(SnapshotError, match="2 lanes in turn"):
        put_lanes_state(own(2), saved)


# ---------------------------------------------------------------- without the lanes


class Opaque(Scripted):
    """Keeps what can't be written down, as a physics engine does."""

    def __init__(self, lane, episodes):
        super().__init__(lane, episodes)
        self.engine = object()


def opaque():
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda i=i: Opaque(i, [(5, TERMINATED), (4, TRUNCATED)]) for i in range(4)],
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    return over_vector_environment(envs, seed=3)


def test_lanes_that_cant_be_saved_begin_new_episodes_and_cut_the_old(tmp_path):
    said = []
    first = make(HostDevice(), gym(), "all", opaque())
    first.say = said.append
    steps(fill(first), 4)
    flags = first.state()["replay_flags"]
    first.state()
    assert len(said) == 1
    assert "engine'] is a object" in said[0]
    assert "begins new episodes" in said[0]
    save_checkpoint(tmp_path / "c.safetensors", first)
    saved = load_checkpoint(tmp_path / "c.safetensors")
    ends = []
    for _ in range(2):
        other = make(HostDevice(), gym(), "all", opaque())
        other.restore(saved.state, replace(saved.progress))
        slot = (int(saved.state["counters"][Counter.HEAD]) - 1) % other.shapes.slots
        newest = slice(4 * slot, 4 * slot + 4)
        assert flags[newest].tolist() == [0, 0, 0, 0]
        now = other.workspace.read("replay_flags")
        assert now[newest].tolist() == [Flag.TRUNCATED] * 4
        now[newest] = 0
        assert now.tolist() == flags.tolist()
        assert other.workspace.read("env_obs")[:, 0].tolist() == [10, 110, 210, 310]
        before = saved.state["replay_episode"].max()
        other.collect()
        assert other.workspace.read("env_episode").min() > before
        ends.append(end_of(steps(other, 6)))
    assert ends[0] == ends[1]


def test_a_checkpoint_without_lanes_begins_anew():
    first = steps(fill(make(HostDevice(), gym())), 3)
    state = first.state()
    del state[HOST_LANES]
    other = make(HostDevice(), gym())
    other.restore(state, replace(first.progress))
    steps(other, 3)
    assert other.env_steps == first.env_steps + 12


def test_damaged_lanes_and_other_lanes_are_said():
    first = fill(make(HostDevice(), gym()))
    state = first.state()
    with pytest.raises(TrainerError, match=r"host_lanes.*damaged"):
        first.restore({**state, HOST_LANES: np.arange(9, dtype=np.uint8)}, first.progress)
    other = make(HostDevice(), gym(env__id="MountainCar-v0"))
    lanes = {HOST_LANES: state[HOST_LANES]}
    with pytest.raises(GymnasiumError, match=r"MountainCar-v0: its saved lanes can't be put back"):
        other.restore({**other.state(), **lanes}, first.progress)


def test_seeds_of_lanes_are_stated_and_apart():
    training = lane_seeds(7, TRAINING, 64)
    assert training.tolist() == lane_seeds(7, TRAINING, 64).tolist()
    assert training[:3].tolist() == lane_seeds(7, TRAINING, 3).tolist()
    others = [lane_seeds(7, EVALUATION, 64), lane_seeds(8, TRAINING, 64)]
    others.append(lane_seeds(7, TRAINING, 64, point=1))
    all_of_them = np.concatenate([training, *others])
    assert len(set(all_of_them.tolist())) == all_of_them.size
    assert all_of_them.min() >= 0
    assert all_of_them.max() < 2**31
