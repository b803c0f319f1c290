"""Lanes in processes of their own."""

import os
import signal

import gymnasium
import numpy as np
import pytest
from scripted_envs import TERMINATED, Scripted
from trainer.setups import gym, make, trajectory

from onegraph.kernels.device import HostDevice
from onegraph.trainer.envs.gym import GymnasiumError, over_vector_environment

pytestmark = pytest.mark.slow


class Unreadable(Scripted):
    def __init__(self):
        super().__init__(0, [(3, TERMINATED)])

    def step(self, action):
        raise FileNotFoundError("no such table")


def test_lanes_in_processes_do_what_lanes_in_turn_do():
    config = gym(env__lanes=2, replay__capacity=70)
    kinds = [config, gym(env__lanes=2, replay__capacity=70, env__vectorization="async")]
    one, other = (trajectory(make(HostDevice(), c), 10) for c in kinds)
    assert one.indices == other.indices
    assert [n for n in one.end if one.end[n] != other.end[n]] == ["host_lanes"]


def test_a_worker_that_dies_is_named_by_its_lane():
    config = gym(env__lanes=2, replay__capacity=70, env__vectorization="async")
    trainer = make(HostDevice(), config)
    steps_before = trainer.collect()
    assert steps_before.by_kind()
    lanes = trainer._host.lanes
    assert lanes.unsaved == ""
    trainer.state()
    assert "other processes" in lanes.unsaved
    worker = lanes.envs.unwrapped.processes[1]
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(10)
    with pytest.raises(GymnasiumError, match=r"lane 1 \(exit code -9\) died in vector step 1"):
        trainer.collect()
    assert np.isfinite(trainer.parameters()).all()
    trainer.close()


def test_what_a_worker_raises_is_raised_here():
    """An error of the environment is no lost worker, also where it is of the operating system."""
    config = gym(env__lanes=1)
    envs = gymnasium.vector.SyncVectorEnv(
        [Unreadable], autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
    )
    trainer = make(HostDevice(), config, "all", over_vector_environment(envs, seed=0))
    with pytest.raises(FileNotFoundError, match="no such table") as caught:
        trainer.collect()
    assert caught.value.__notes__ == ["in vector step 0 of SyncVectorEnv"]
    trainer.close()
