"""A trainer's buffers in place: what they show, and for how long."""

import numpy as np
import pytest
from trainer.setups import fill, make, short, steps

from onegraph.kernels.device import DeviceError, HostDevice
from onegraph.stages import format_set


@pytest.fixture
def trainer():
    return fill(make(HostDevice(), short()))


def test_a_view_follows_the_steps_without_a_copy(trainer):
    theta = np.from_dlpack(trainer.view("theta"))
    before = theta.copy()
    steps(trainer, 2)
    assert trainer.device.ledger.totals["epoch", "", "dtoh"] == 0
    assert not np.array_equal(theta, before)
    np.testing.assert_array_equal(theta, trainer.parameters())


def test_the_replay_in_place(trainer):
    states = np.from_dlpack(trainer.view("replay_state"))
    assert states.shape == (trainer.shapes.capacity, trainer.network.inputs)
    np.testing.assert_array_equal(states, trainer.workspace.read("replay_state"))


def test_steps_stay_as_they_are_under_views(trainer):
    other = fill(make(HostDevice(), short()))
    held = [np.from_dlpack(trainer.view(n)) for n in ("theta", "replay_state", "counters")]
    for run in (trainer, other):
        steps(run, 3)
    np.testing.assert_array_equal(trainer.parameters(), other.parameters())
    assert len(held) == 3


def test_a_view_ends_with_the_trainer(trainer):
    view = trainer.view("theta")
    theta, values = np.from_dlpack(view), trainer.parameters()
    trainer.close()
    assert view.freed
    np.testing.assert_array_equal(theta, values)
    with pytest.raises(DeviceError, match="array 'theta' was freed"):
        np.from_dlpack(view)
    with pytest.raises(KeyError, match="no buffer 'theta'"):
        trainer.view("theta")


def test_a_view_ends_with_the_buffer_that_a_new_config_replaces(trainer):
    theta, replay = trainer.view("theta"), trainer.view("replay_state")
    trainer.reconfigure(short(learn__gamma=0.5))
    assert not theta.freed
    trainer.reconfigure(short(network__hidden=[8]))
    assert theta.freed
    assert not replay.freed
    assert np.from_dlpack(trainer.view("theta")).size == trainer.network.size


def test_what_is_no_buffer_of_the_device_is_named(trainer):
    with pytest.raises(KeyError, match=r"no buffer 'thetas'; there are .*theta_target"):
        trainer.view("thetas")


@pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")
@pytest.mark.parametrize("stages", [frozenset(), frozenset(range(1, 7))], ids=format_set)
def test_who_holds_a_view_stops_nobody(stages):
    trainer = steps(fill(make(HostDevice(), short(), stages)), 1)
    names = [n for n in trainer.workspace.arrays if not trainer.workspace.declared(n).transient]
    held = [np.from_dlpack(trainer.view(name)) for name in names]
    trainer.close()
    assert len(held) > 10
