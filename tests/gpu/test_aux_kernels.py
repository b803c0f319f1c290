"""The auxiliary losses' kernels against their twins, bit for bit."""

import numpy as np
import pytest
from block_runs import run_pass
from pair_runs import assert_same

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.device import HostDevice
from onegraph.stages.program import Ref
from onegraph.trainer.blocks.denoise import Denoise
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.blocks.iql import Modulation, ValueNetworks
from onegraph.trainer.blocks.layout import Layout

pytestmark = pytest.mark.gpu

#: None, one, odd, a block, just more, and many blocks' worth.
SIZES = [0, 1, 7, 255, 256, 257, 5003]


def spiced(rng, shape, share=0.02):
    """Normal numbers with some NaN, infinities, zeros, and very large and very small ones."""
    values = rng.normal(size=shape).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 3e38, 1e-42], np.float32)
    at = rng.random(shape) < share
    values[at] = rng.choice(special, size=int(at.sum()))
    return values


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("actions", "dueling"), [(1, 0), (3, 1), (18, 0), (2, 1)])
@pytest.mark.parametrize(("high", "low"), [(0.7, 0.3), (0.99, 0.01), (0.5, 0.5)])
def test_expectile_loss(cuda, n, actions, dueling, high, low):
    rng = np.random.default_rng(n + actions)
    outputs = ("q", "loss_hi", "loss_lo", "grad_hi", "grad_lo")
    assert_same(
        cuda,
        "expectile_loss",
        head=spiced(rng, (n, actions + dueling)),
        action=rng.integers(-1, actions + 1, size=n),  # some are no action
        weight=rng.uniform(0, 1, n),
        v_hi=spiced(rng, n),
        v_lo=spiced(rng, n),
        **dict.fromkeys(outputs, n),
        rows=n,
        actions=actions,
        dueling=dueling,
        high=high,
        low=low,
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize(
    ("k", "eps", "low", "high"), [(1.0, 1e-3, 0.5, 2.0), (0.0, 1.0, 0.0, 1e9), (5.0, 0.1, 0.0, 1e9)]
)
def test_iql_modulate(cuda, n, scale, k, eps, low, high):
    rng = np.random.default_rng(n)
    with np.errstate(all="ignore"):
        td, q, v_hi, v_lo = (np.float32(scale) * spiced(rng, n) for _ in range(4))
        v_hi[: n // 2] = v_lo[: n // 2] + np.abs(v_hi[: n // 2])  # mostly as it should be
    assert_same(
        cuda,
        "iql_modulate",
        td=td,
        q=q,
        v_hi=v_hi,
        v_lo=v_lo,
        rows=n,
        k=k,
        eps=eps,
        low=low,
        high=high,
    )


@pytest.mark.parametrize(
    ("rows", "width", "padded"),
    [(0, 5, 8), (1, 1, 8), (7, 5, 8), (32, 8, 8), (257, 33, 40), (5003, 17, 24), (3, 3, 5)],
)
@pytest.mark.parametrize("sigma", [0.0, 0.3, 1e30])
@pytest.mark.parametrize("step", [1, 2**32 + 77])
def test_add_noise(cuda, rows, width, padded, sigma, step):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG] = step
    assert_same(
        cuda,
        "add_noise",
        s=spiced(np.random.default_rng(rows), (rows, padded)),
        counters=counters,
        noised=rows * padded,
        rows=rows,
        width=width,
        padded=padded,
        sigma=sigma,
        seed=0xFEDCBA9876543210,
    )


def test_the_noise_of_a_million_elements(cuda):
    """Every branch of the logarithm and of the angle's folding, many times."""
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG] = 5
    rows, padded = 4096, 256
    assert_same(
        cuda,
        "add_noise",
        s=np.zeros((rows, padded)),
        counters=counters,
        noised=rows * padded,
        rows=rows,
        width=padded,
        padded=padded,
        sigma=1.0,
        seed=3,
    )


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize(
    ("width", "padded"), [(0, 8), (1, 8), (5, 8), (31, 32), (32, 32), (33, 40), (200, 200)]
)
@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_denoise_loss(cuda, rows, width, padded, weight):
    rng = np.random.default_rng(rows + width)
    assert_same(
        cuda,
        "denoise_loss",
        decoded=spiced(rng, (rows, padded), share=0.002),
        clean=spiced(rng, (rows, padded), share=0.002),
        loss=rows,
        grad=rows * padded,
        rows=rows,
        width=width,
        padded=padded,
        weight=weight,
    )


@pytest.mark.parametrize("rows", [1, 33, 256])
def test_the_value_networks_are_the_hosts(cuda, rows):
    """Within rounding: a matrix product sums in an order of its own on each device."""
    block = ValueNetworks(16, 32, real_width=11)
    layout = Layout(block.tensors())
    rng = np.random.default_rng(rows)
    given = {
        "theta": layout.initial(1),
        "s": rng.normal(size=(rows, 16)).astype(np.float32),
        "head": rng.normal(size=(rows, 4)).astype(np.float32),
        "action": rng.integers(3, size=rows).astype(np.int32),
        "weight": rng.uniform(0.1, 1, rows).astype(np.float32),
        "td": rng.normal(size=rows).astype(np.float32),
    }

    def results(device):
        emit = Emit(layout, "p_", rows)
        values = block.forward(emit, Ref("s"))
        loss = block.loss(emit, Ref("head"), Ref("action"), Ref("weight"), actions=3, dueling=True)
        block.backward(emit, Ref("s"))
        Modulation().emit(emit, Ref("td"), loss.q, values)
        found = run_pass(emit, given, device=device)
        return [found[name] for name in (values.hi.buffer, values.lo.buffer, "td", "grad")]

    for got, want in zip(results(cuda), results(HostDevice()), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)


@pytest.mark.parametrize("rows", [1, 33, 256])
def test_the_denoising_decoder_is_the_hosts(cuda, rows):
    block = Denoise(24, 32, 11, 16, sigma=0.2, weight=0.5)
    layout = Layout(block.tensors())
    rng = np.random.default_rng(rows)
    given = {
        "theta": layout.initial(1),
        "features": np.abs(rng.normal(size=(rows, 24))).astype(np.float32),
        "s": rng.normal(size=(rows, 16)).astype(np.float32),
        "counters": np.arange(COUNTERS, dtype=np.int64) + 3,
    }

    def results(device):
        emit = Emit(layout, "p_", rows, grads="grad_aux")
        noised = block.noised(emit, Ref("s"), seed=9)
        decoded = block.forward(emit, Ref("features"))
        loss = block.loss(emit, Ref("s"))
        grad_in = block.backward(emit, Ref("features"))
        found = run_pass(emit, given, device=device)
        names = [noised.buffer, decoded.buffer, loss.buffer, grad_in.buffer, "grad_aux"]
        return [found[name] for name in names]

    for got, want in zip(results(cuda), results(HostDevice()), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)
