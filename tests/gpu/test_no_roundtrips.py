"""`no_roundtrips` on a GPU: the same ledger refuses the same calls, before they are made."""

import numpy as np
import pytest
from trainer.setups import chain, fill, make

from onegraph.kernels.device import RoundTripError, no_roundtrips

pytestmark = pytest.mark.gpu


def test_a_round_trip_raises_and_device_work_passes(cuda):
    x, y = (cuda.upload(np.ones(8, np.float32)) for _ in range(2))
    with no_roundtrips(cuda):
        cuda.copy_dtod(x, y)
        cuda.memset(x)
        for call in (
            cuda.synchronize,
            x.to_host_checkpoint,
            lambda: cuda.copy_htod(y, np.zeros(8, np.float32)),
            lambda: cuda.allocate((2,), "f32"),
            lambda: cuda.free(y),
        ):
            with pytest.raises(RoundTripError) as caught:
                call()
            assert caught.value.file == __file__
    assert x.to_host_checkpoint().tolist() == [0] * 8
    assert y.to_host_checkpoint().tolist() == [1] * 8


def test_cupti_sees_a_wait_that_goes_past_the_device(cuda):
    from cuda.bindings import driver

    block = no_roundtrips(cuda, cupti=True)
    assert block.__enter__().cupti == "CUPTI: watching"
    driver.cuCtxSynchronize()
    with pytest.raises(RoundTripError, match="cuCtxSynchronize") as caught:
        block.__exit__(None, None, None)
    assert (caught.value.kind, caught.value.file) == ("sync", __file__)


@pytest.mark.parametrize("stages", ["0-4", "all"])
def test_a_step_makes_no_round_trip_that_either_watch_sees(cuda, stages):
    trainer = fill(make(cuda, chain(), stages))
    trainer.learn()
    trainer.collect()
    with no_roundtrips(cuda, cupti=True):
        for _ in range(3):
            trainer.learn()
            trainer.collect()


@pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")
def test_a_step_of_stage_0_is_refused_at_its_first_round_trip(cuda):
    trainer = fill(make(cuda, chain(), "none"))
    trainer.learn()
    with pytest.raises(RoundTripError) as caught, no_roundtrips(cuda, cupti=True):
        trainer.learn()
    assert caught.value.phase == "per_sample"
    assert not caught.value.driver_call
