"""Noise on states, and the decoder that takes it away again."""

import math

import numpy as np
import pytest
from block_runs import run_pass
from central_differences import numeric_gradient
from pair_runs import run_host

from onegraph.kernels.common.layout import COUNTERS, Counter, StreamTag
from onegraph.kernels.common.normal import normal_pair
from onegraph.kernels.common.philox import philox_uniform
from onegraph.kernels.learner.denoise_loss import denoise_terms
from onegraph.stages.program import Ref
from onegraph.trainer.blocks.denoise import Denoise
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.blocks.layout import Group, Layout

NAN = math.nan


def counters(step=1):
    out = np.zeros(COUNTERS, np.int64)
    out[Counter.RNG] = step
    return out


# ------------------------------------------------------------------------ normal numbers


@pytest.mark.parametrize(
    ("u0", "u1", "z0", "z1"),
    [
        (0.0, 0.3, 0, 0),
        (1 - math.exp(-0.5), 0.0, 1, 0),
        (1 - math.exp(-0.5), 0.25, 0, 1),
        (1 - math.exp(-0.5), 0.5, -1, 0),
        (1 - math.exp(-0.5), 0.75, 0, -1),
        (1 - math.exp(-2), 0.125, math.sqrt(2), math.sqrt(2)),
        (1 - math.exp(-2), 0.625, -math.sqrt(2), -math.sqrt(2)),
    ],
)
def test_box_muller(u0, u1, z0, z1):
    assert normal_pair(np.array([u0, u1])) == pytest.approx([z0, z1], abs=1e-15)


def test_the_largest_uniform_gives_a_finite_number():
    largest = 1 - 2.0**-53
    assert normal_pair(np.array([largest, 0.0]))[0] == pytest.approx(
        math.sqrt(106 * math.log(2)), rel=1e-15
    )
    assert np.isfinite(normal_pair(np.array([[largest, largest], [0, largest]]))).all()


def test_box_muller_agrees_with_libm_at_any_angle():
    u = philox_uniform(5, np.arange(20_000), 0, StreamTag.DENOISE)
    r, angle = np.sqrt(-2 * np.log1p(-u[:, 0])), 2 * np.pi * u[:, 1]
    wanted = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=-1)
    np.testing.assert_allclose(normal_pair(u), wanted, rtol=0, atol=1e-14)


def test_the_numbers_are_standard_normal_and_independent():
    n = 200_000
    z = normal_pair(philox_uniform(9, np.arange(n), 3, StreamTag.DENOISE))
    assert np.abs(z.mean(axis=0)).max() < 5 / math.sqrt(n)
    assert np.abs(z.var(axis=0) - 1).max() < 5 * math.sqrt(2 / n)
    assert abs((z[:, 0] * z[:, 1]).mean()) < 5 / math.sqrt(n)
    # Kolmogorov-Smirnov against the normal distribution, at a level of about 1e-6.
    flat = np.sort(z.reshape(-1))
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in flat[::100]])
    rank = np.arange(flat.size)[::100] / flat.size
    assert np.abs(below - rank).max() < 2.7 / math.sqrt(flat.size)


# ------------------------------------------------------------------------ noise


def noised(s, width, *, sigma=0.5, step=1, seed=7):
    rows, padded = np.shape(s)
    return run_host(
        "add_noise",
        s=s,
        counters=counters(step),
        noised=rows * padded,
        rows=rows,
        width=width,
        padded=padded,
        sigma=sigma,
        seed=seed,
    )["noised"].reshape(-1)


@pytest.mark.parametrize(("rows", "width", "padded"), [(1, 1, 8), (3, 5, 8), (4, 8, 8), (3, 3, 5)])
def test_real_columns_get_the_streams_numbers_and_padding_none(rows, width, padded):
    s = np.random.default_rng(0).normal(size=(rows, padded)).astype(np.float32)
    out = noised(s, width, sigma=0.25, step=12).reshape(rows, padded)
    for r in range(rows):
        for c in range(padded):
            element = r * padded + c
            pair = normal_pair(philox_uniform(7, element // 2, 11, 8))
            wanted = np.float32(s[r, c] + 0.25 * pair[element % 2]) if c < width else 0
            assert out[r, c] == wanted


def test_no_noise_copies_the_states():
    s = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    s[:, 6:] = 0
    np.testing.assert_array_equal(noised(s, 6, sigma=0.0).reshape(3, 8), s)


def test_each_step_and_each_seed_has_its_own_noise():
    s = np.zeros((5, 8), np.float32)
    draws = [noised(s, 8, step=step, seed=seed).tobytes() for step in (1, 2) for seed in (1, 2)]
    assert len(set(draws)) == 4
    assert noised(s, 8).tobytes() == noised(s, 8).tobytes()


def test_what_is_no_number_stays_so_in_its_place():
    s = np.zeros((2, 8), np.float32)
    s[0, 3], s[1, 2], s[1, 7] = NAN, math.inf, NAN
    out = noised(s, 7).reshape(2, 8)
    assert np.argwhere(~np.isfinite(out)).tolist() == [[0, 3], [1, 2]]
    assert out[1, 7] == 0  # padding


def test_no_rows():
    assert np.isnan(noised(np.zeros((0, 8)), 5)).all()


# ------------------------------------------------------------------------ loss


def loss_of(decoded, clean, width, weight=1.0):
    rows, padded = np.shape(decoded)
    out = run_host(
        "denoise_loss",
        decoded=decoded,
        clean=clean,
        loss=rows,
        grad=rows * padded,
        rows=rows,
        width=width,
        padded=padded,
        weight=weight,
    )
    return out["loss"], out["grad"][: rows * padded].reshape(rows, padded)


def test_loss_and_gradient():
    # errors 1, -2 | 3, 0; two features, two rows, weight 3
    loss, grad = loss_of([[2, 0, 50, NAN], [3, 1, -9, 8]], [[1, 2, 0, 0], [0, 1, 0, 0]], 2, 3.0)
    assert loss.tolist() == [3 * 5 / 2, 3 * 9 / 2]
    assert grad.tolist() == [[2 * 3 / 4, -2 * 3 * 2 / 4, 0, 0], [2 * 3 * 3 / 4, 0, 0, 0]]


def test_nan_reaches_its_row_and_column_alone():
    decoded = np.zeros((3, 8))
    decoded[1, 2] = NAN
    loss, grad = loss_of(decoded, np.zeros((3, 8)), 6)
    assert np.isnan(loss).tolist() == [False, True, False]
    assert np.argwhere(np.isnan(grad)).tolist() == [[1, 2]]


@pytest.mark.parametrize("width", [1, 31, 32, 33, 100])
def test_the_squares_are_summed_over_any_width(width):
    padded = -(-width // 8) * 8
    rng = np.random.default_rng(width)
    decoded, clean = (rng.normal(size=(4, padded)).astype(np.float32) for _ in range(2))
    loss, _ = loss_of(decoded, clean, width, 0.5)
    error = (decoded - clean)[:, :width].astype(np.float64)
    np.testing.assert_allclose(loss, 0.5 * np.square(error).mean(axis=1), rtol=1e-6)


def test_the_gradient_is_that_of_central_differences():
    rng = np.random.default_rng(1)
    decoded, clean = rng.normal(size=(2, 5, 7))
    wanted = numeric_gradient(lambda: denoise_terms(decoded, clean, 0.3)[0].mean(), decoded)
    np.testing.assert_allclose(denoise_terms(decoded, clean, 0.3)[1], wanted, rtol=1e-7, atol=1e-9)


def test_nothing_to_decode():
    loss, grad = loss_of(np.zeros((2, 8)), np.zeros((2, 8)), 0)
    assert loss.tolist() == [0, 0]
    assert not grad.any()
    loss, _ = loss_of(np.zeros((0, 8)), np.zeros((0, 8)), 5)
    assert np.isnan(loss).all()


# ------------------------------------------------------------------------ the block

ROWS, S, PADDED, FEATURES, HIDDEN = 13, 5, 8, 7, 6


def test_the_blocks_gradients_are_those_of_central_differences():
    block = Denoise(FEATURES, HIDDEN, S, PADDED, weight=0.4)
    emit = Emit(Layout(block.tensors()), "p_", ROWS, grads="grad_aux")
    decoded = block.forward(emit, Ref("features"))
    loss = block.loss(emit, Ref("s"))
    grad_in = block.backward(emit, Ref("features"))
    layout = emit.layout
    assert all(tensor.group == Group.DENOISE for tensor in layout)

    rng = np.random.default_rng(2)
    features = np.maximum(rng.normal(size=(ROWS, FEATURES)), 0).astype(np.float32)
    s = np.zeros((ROWS, PADDED), np.float32)
    s[:, :S] = rng.normal(size=(ROWS, S))
    theta = layout.initial(3)
    found = run_pass(emit, {"theta": theta, "features": features, "s": s})

    def forward(flat, x):
        hidden = np.maximum(
            x @ layout["denoise.hidden.weight"].values(flat)
            + layout["denoise.hidden.bias"].values(flat),
            0,
        )
        return hidden @ layout["denoise.state.weight"].values(flat) + layout[
            "denoise.state.bias"
        ].values(flat)

    def objective(flat, x):
        return float(0.4 * np.square(forward(flat, x) - s)[:, :S].mean())

    exact, x = theta.astype(np.float64), features.astype(np.float64)
    np.testing.assert_allclose(found[decoded.buffer], forward(exact, x), rtol=1e-4, atol=1e-5)
    assert found[loss.buffer].mean() == pytest.approx(objective(exact, x), rel=1e-5)
    wanted = numeric_gradient(lambda: objective(exact, x), exact)
    got = found["grad_aux"]
    for tensor in layout:
        np.testing.assert_allclose(
            tensor.values(got), tensor.values(wanted), rtol=0, atol=1e-6, err_msg=tensor.name
        )
    # What the padding decodes to has no part in the loss.
    assert not layout["denoise.state.weight"].values(got)[:, S:].any()
    wanted_in = numeric_gradient(lambda: objective(exact, x), x)
    np.testing.assert_allclose(found[grad_in.buffer], wanted_in, rtol=0, atol=1e-6)


def test_the_block_noises_by_the_steps_number():
    block = Denoise(FEATURES, HIDDEN, S, PADDED, sigma=0.5)
    emit = Emit(Layout(block.tensors()), "p_", ROWS)
    out = block.noised(emit, Ref("s"), seed=2**63 + 5)
    s = np.random.default_rng(0).normal(size=(ROWS, PADDED)).astype(np.float32)
    found = run_pass(emit, {"s": s, "counters": counters(41)})
    np.testing.assert_array_equal(
        found[out.buffer].reshape(-1), noised(s, S, sigma=0.5, step=41, seed=2**63 + 5)
    )


def test_a_decoder_learns_to_take_noise_away():
    """Linear features of noised states, trained on its own loss, come below the noise."""
    rng = np.random.default_rng(4)
    block = Denoise(PADDED, 16, S, PADDED, sigma=0.5)
    layout = Layout(block.tensors())
    theta = layout.initial(1)
    basis = rng.normal(size=(1, S))
    losses = []
    for step in range(300):
        s = np.zeros((64, PADDED), np.float32)
        s[:, :S] = rng.normal(size=(64, 1)) @ basis  # states on a line
        emit = Emit(layout, "p_", 64)
        features = block.noised(emit, Ref("s"), seed=0)
        block.forward(emit, features)
        loss = block.loss(emit, Ref("s"))
        block.backward(emit, features)
        found = run_pass(emit, {"theta": theta, "s": s, "counters": counters(step + 1)})
        losses.append(float(found[loss.buffer].mean()))
        theta = theta - np.float32(0.1) * found["grad"]
    assert np.mean(losses[-50:]) < 0.5 * 0.5**2
