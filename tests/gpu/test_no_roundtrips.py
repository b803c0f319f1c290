"""`no_roundtrips` on a GPU: the same ledger refuses the same calls, before they are made."""

import numpy as np
import pytest

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
