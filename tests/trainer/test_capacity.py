"""A replay that does not fit: halved, and said so; or refused, with what is needed."""

import numpy as np
import pytest
from trainer.setups import chain, fill, make, market, steps

from onegraph.kernels.device import DeviceError, HostDevice
from onegraph.trainer.trainer import Trainer, TrainerError

ALL = frozenset(range(1, 7))


def built(config, device=None, stages=ALL):
    said = []
    return Trainer(config, device or HostDevice(), stages, say=said.append), said


def test_a_cap_halves_the_capacity_until_it_fits():
    # A chain's row is two states of 8 floats, 26 bytes of other columns, 4 of the owner: 94 bytes.
    config = chain(replay__capacity=40_000, replay__memory_cap_mb=1)
    trainer, said = built(config)
    assert trainer.shapes.capacity == 10_000
    assert 10_000 * 94 <= 2**20 < 20_000 * 94
    assert said == [
        "replay: 40,000 rows do not fit (the memory cap is 1 MiB); using 20,000",
        "replay: 20,000 rows do not fit (the memory cap is 1 MiB); using 10,000",
    ]
    steps(fill(trainer), 3)


def test_a_cap_that_holds_the_replay_changes_nothing():
    trainer, said = built(chain(replay__capacity=10_000, replay__memory_cap_mb=1))
    assert (trainer.shapes.capacity, said) == (10_000, [])


def test_the_halves_stay_multiples_of_the_lanes():
    trainer, _ = built(chain(env__lanes=7, replay__capacity=7 * 3001, replay__memory_cap_mb=1))
    assert trainer.shapes.capacity == 7 * 1500


@pytest.mark.parametrize("stages", [ALL, frozenset({1})], ids=["all", "1"])
def test_a_short_device_halves_the_capacity_and_training_goes_on(stages):
    device = HostDevice(memory_bytes=1_000_000)
    trainer, said = built(chain(replay__capacity=40_000), device, stages)
    assert trainer.shapes.capacity == 10_000
    assert len(said) == 2
    assert said[0].startswith("replay: 40,000 rows do not fit (memory is short: ")
    assert said[0].endswith("; using 20,000")
    steps(fill(trainer), 60)
    assert np.isfinite(trainer.parameters()).all()
    trainer.close()
    assert device.memory_free() == 1_000_000, "what the failed attempts had allocated is free"


class Working(HostDevice):
    working_bytes = 300_000


def test_a_capacity_found_by_halving_leaves_the_working_memory():
    """Of 1,000,000 bytes, 10,000 rows of 94 leave less; 5,000 leave enough."""
    plain, _ = built(chain(replay__capacity=40_000), HostDevice(memory_bytes=1_000_000))
    assert plain.shapes.capacity == 10_000
    device = Working(memory_bytes=1_000_000)
    trainer, said = built(chain(replay__capacity=40_000), device)
    assert trainer.shapes.capacity == 5_000
    assert device.memory_free() >= 300_000
    assert said[-1].startswith("replay: 10,000 rows do not fit (")
    assert said[-1].endswith(
        " bytes would be left, modules and graphs may need 300,000); using 5,000"
    )
    steps(fill(trainer), 3)
    trainer.close()
    assert device.memory_free() == 1_000_000


def test_a_capacity_that_fits_as_asked_for_is_left_alone():
    """It may be that of a checkpoint, which half of it could not take up."""
    trainer, said = built(chain(replay__capacity=10_000), Working(memory_bytes=1_000_000))
    assert (trainer.shapes.capacity, said) == (10_000, [])


def test_what_training_needs_goes_before_the_working_memory():
    config = chain(replay__capacity=40_000, loop__start_steps=8_000, loop__total_env_steps=9_000)
    trainer, _ = built(config, Working(memory_bytes=1_000_000))
    assert trainer.shapes.capacity == 10_000


def test_the_trajectory_is_that_of_the_smaller_capacity():
    short, _ = built(chain(replay__capacity=4_000), HostDevice(memory_bytes=250_000))
    plain, _ = built(chain(replay__capacity=short.shapes.capacity))
    assert short.shapes.capacity < 4_000
    for trainer in (short, plain):
        steps(fill(trainer), 10)
    np.testing.assert_array_equal(short.parameters(), plain.parameters())


def test_below_what_training_needs_it_is_refused():
    with pytest.raises(TrainerError) as caught:
        built(chain(replay__capacity=300), HostDevice(memory_bytes=20_000))
    assert str(caught.value).startswith(
        "replay.capacity: 300 rows of 94 bytes do not fit (memory is short: "
    )
    assert str(caught.value).endswith(
        "and 148 rows are fewer than the 160 that loop.start_steps, learn.batch_size and"
        " replay.n_step need; lower those, or raise the memory"
    )


def test_a_host_without_memory_counts_as_a_short_device(monkeypatch):
    full = np.full

    def limited(shape, *args, **kwargs):
        if np.prod(shape) > 50_000:
            raise MemoryError
        return full(shape, *args, **kwargs)

    monkeypatch.setattr(np, "full", limited)
    trainer, said = built(chain(replay__capacity=40_000))
    assert trainer.shapes.capacity == 5_000
    assert "bytes asked for" in said[0]


def test_another_failure_of_the_device_is_not_taken_for_a_lack_of_memory():
    class Broken(HostDevice):
        def _allocate(self, shape, dtype, name, pinned):
            self.fail("CUDA_ERROR_UNKNOWN", f"allocate {name}", "planted")

    with pytest.raises(DeviceError, match="CUDA_ERROR_UNKNOWN"):
        built(chain(), Broken())


def test_lanes_other_than_the_configs_are_refused():
    environment = make(HostDevice(), market()).environment
    with pytest.raises(TrainerError, match=r"has 4 lanes, env\.lanes is 3"):
        make(HostDevice(), market(env__lanes=3, replay__capacity=300), "all", environment)
