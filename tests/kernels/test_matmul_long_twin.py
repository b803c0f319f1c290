"""Products with long sums: which they are, how they are shared out, and the twin, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.base import Matmul
from onegraph.kernels.learner import gemm, matmul_long


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("size", "precision", "long"),
    [
        ((64, 256, 4096), "float32", True),
        ((64, 256, 4095), "float32", False),
        ((256, 512, 4096), "float32", True),  # 2^17 outputs
        ((257, 512, 4096), "float32", False),
        ((0, 5, 4096), "float32", False),  # nothing to share out
        ((64, 256, 16384), "tf32", True),  # 2^28 multiply-adds
        ((64, 256, 16385), "tf32", False),  # the tensor cores' by cuBLASLt
        ((64, 256, 16385), "tf32x3", True),  # which takes none of these
    ],
)
def test_which_products_are_long(size, precision, long):
    assert Matmul(*size, trans_a=True, precision=precision).is_long is long


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (False, True), (True, True)])
def test_only_the_form_of_a_weights_gradient_is_long(trans_a, trans_b):
    assert not Matmul(64, 256, 8192, trans_a, trans_b).is_long


@pytest.mark.parametrize(
    ("size", "tiles", "shares"),
    [
        ((64, 256, 8192), 4, 32),  # 128 blocks, each with eight chunks of 32 k's
        ((256, 128, 8192), 8, 16),
        ((65, 257, 8192), 10, 12),  # 12 blocks a tile, 120 in all
        ((256, 3, 8192), 4, 32),  # narrow tiles
        ((256, 8, 8192), 4, 32),
        ((256, 9, 8192), 4, 32),  # and not
        ((64, 64, 4096), 1, 32),  # 128 chunks, of which a block has four at least
        ((1, 1, 4097), 1, 26),  # 129: five each, and the last has four
        ((512, 256, 4096), 32, 4),
        ((513, 512, 4096), 72, 1),
        ((2, 2, 100), 1, 1),
        ((2, 2, 0), 1, 1),
    ],
)
def test_how_sums_are_shared_out(size, tiles, shares):
    m, n, k = size
    assert (matmul_long.tiles(m, n), matmul_long.shares(m, n, k)) == (tiles, shares)
    assert matmul_long.slots([size]) == (tiles * shares if shares > 1 else 0)


@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 100_000))
def test_no_share_is_empty_and_none_is_missing(m, n, k):
    chunks, shares = -(-k // matmul_long.DEPTH), matmul_long.shares(m, n, k)
    run = -(-chunks // shares)
    assert 1 <= shares <= 128
    assert shares == 1 or (shares - 1) * run < chunks <= shares * run
    assert matmul_long.tiles(m, n) * shares <= max(128, matmul_long.tiles(m, n))


def arguments(*products: tuple[Any, ...]) -> dict[str, Any]:
    sizes = [product[4] for product in products]
    slots = matmul_long.slots(sizes)
    return {
        **matmul_long.arguments(products),
        "scratch": np.zeros(slots * matmul_long.SLOT, np.float32),
        "tickets": np.zeros(slots, np.uint32),
    }


A, B = f32(1, 2, 3, 4), f32(5, 6, 7, 8)


@pytest.mark.parametrize(
    ("epilogue", "extra", "want"),
    [
        (gemm.NONE, f32(9, 9), [26, 30, 38, 44]),
        (gemm.BIAS, f32(1, -1), [27, 29, 39, 43]),
        (gemm.BIAS_RELU, f32(-30, 0), [0, 30, 8, 44]),
        (gemm.RELU_GRAD, f32(1, 0, np.nan, 2), [26, 0, 0, 44]),
        (gemm.BIAS_GRAD, f32(9, 9), [26, 30, 38, 44]),
    ],
)
def test_a_product_by_hand(epilogue, extra, want):
    extra, out = extra.copy(), np.full(4, np.nan, np.float32)
    matmul_long.matmul_long(**arguments((A, B, extra, out, (2, 2, 2), epilogue)))
    assert out.tolist() == want
    if epilogue == gemm.BIAS_GRAD:
        assert extra.tolist() == [12, 14]


def test_four_products_of_other_sizes():
    ones = np.ones((8192, 2), np.float32)
    products, outs = [], []
    for m, n, k in ((1, 2, 8192), (2, 1, 4096), (2, 2, 2), (1, 1, 0)):
        outs.append(np.full(m * n, np.nan, np.float32))
        a, b = (ones.ravel()[: k * x] for x in (m, n))
        products.append((a, b, None, outs[-1], (m, n, k), gemm.NONE))
    matmul_long.matmul_long(**arguments(*products))
    assert [out.tolist() for out in outs] == [[8192] * 2, [4096] * 2, [2] * 4, [0]]


def test_the_host_device_gives_what_the_twin_gives():
    rng = np.random.default_rng(0)
    spec = Matmul(5, 7, 4200, trans_a=True, epilogue="bias_grad")
    assert spec.is_long
    a, b = (rng.standard_normal(spec.k * x).astype(np.float32) for x in (spec.m, spec.n))
    sums, out = np.zeros(spec.n, np.float32), np.zeros(spec.m * spec.n, np.float32)
    size = (spec.m, spec.n, spec.k)
    matmul_long.matmul_long(**arguments((a, b, sums, out, size, gemm.BIAS_GRAD)))
    with HostDevice() as device:
        given = [device.upload(x) for x in (a, b, np.zeros_like(out), np.zeros_like(sums))]
        device.matmul(spec, *given)
        assert given[2].to_host_checkpoint().tolist() == out.tolist()
        assert given[3].to_host_checkpoint().tolist() == sums.tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"blocks": 2}, "the members have 1 blocks, and 2 are asked for"),
        ({"shared_bytes": 4}, "needs 52480 bytes of shared memory, got 4"),
        ({"form0": 0}, "member 0 is shared out among 0 blocks"),
        ({"form0": 3 << 4, "blocks": 3}, "need 3 slots of 4160 floats and as many tickets, got 0"),
    ],
)
def test_wrong_arguments_are_refused(changed, message):
    given = arguments((A, B, None, np.zeros(4, np.float32), (2, 2, 2), gemm.NONE))
    with pytest.raises(ValueError, match=message):
        matmul_long.matmul_long(**{**given, **changed})


def test_a_ticket_that_is_not_zero_is_refused():
    ones = np.ones(4096, np.float32)
    given = arguments((ones, ones, None, np.zeros(1, np.float32), (1, 1, 4096), gemm.NONE))
    given["tickets"][31] = 1
    with pytest.raises(ValueError, match="a ticket is not 0"):
        matmul_long.matmul_long(**given)
