"""The run-time half on the trainer: a graphed step passes, an earlier stage is refused."""

import pytest

from onegraph.kernels.device import HostDevice, RoundTripError, no_roundtrips
from onegraph.kernels.device.no_roundtrips import ROUND_TRIPS
from onegraph.stages.flags import parse_stages
from onegraph.trainer.config import load_config
from onegraph.trainer.trainer import Trainer

SMALL = {"replay.capacity": 512, "loop.start_steps": 64, "learn.batch_size": 32}


def ready(stages):
    """A trainer that has learned and collected once, so that its graphs are captured."""
    device = HostDevice()
    trainer = Trainer(load_config("chain", SMALL), device, parse_stages(stages))
    while trainer.rows < 64:
        trainer.collect()
    trainer.learn()
    return trainer, device


def test_a_step_with_every_stage_on_makes_no_round_trip_and_no_launch():
    trainer, device = ready("all")
    with no_roundtrips(device, forbid={*ROUND_TRIPS, "launch", "matmul", "memset", "dtod"}):
        for _ in range(3):
            trainer.learn()
            trainer.collect()


@pytest.mark.parametrize("stages", ["none", "1"])
def test_an_earlier_stage_is_refused_with_op_and_phase(stages):
    trainer, device = ready(stages)
    with pytest.raises(RoundTripError) as caught, no_roundtrips(device):
        trainer.learn()
    assert caught.value.phase == "per_sample"
    assert caught.value.op
    assert caught.value.file.endswith("runner.py")


def test_reading_back_between_steps_is_refused_inside_the_block():
    trainer, device = ready("all")
    with pytest.raises(RoundTripError, match="dtoh"), no_roundtrips(device):
        trainer.parameters()
    assert trainer.parameters().size
