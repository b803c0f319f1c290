"""The trunk's kernels against their twins: bit for bit."""

import numpy as np
import pytest
from pair_runs import assert_same, run_host, run_on

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.learner.gate_forward import row_parts
from onegraph.kernels.learner.layer_norm_grad import tile_count

pytestmark = pytest.mark.gpu

SIZES = [0, 1, 7, 255, 256, 257, 5003]

#: None, one, odd, a tile or a warp's worth, just more, and several blocks' worth.
ROWS = [0, 1, 7, 8, 9, 33, 256, 1003]
COLUMNS = [1, 7, 8, 9, 31, 33, 256, 300]


def spiced(rng, shape, share=0.01, size=1.0):
    """Normal numbers with some NaN, infinities, zeros, and very large and very small ones."""
    values = (rng.normal(size=shape) * size).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 3e38, 1e-42], np.float32)
    at = rng.random(shape) < share
    values[at] = rng.choice(special, size=int(at.sum()))
    return values


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize("parts", [0, 1, 5])
def test_gate_forward(cuda, rows, cols, parts):
    rng = np.random.default_rng(rows * 1000 + cols)
    assert_same(
        cuda,
        "gate_forward",
        x=spiced(rng, (rows, cols)),
        logit=spiced(rng, cols, size=20),
        out=rows * cols,
        rows=rows,
        cols=cols,
        width=cols - cols // 4,
        parts=parts or row_parts(rows),
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize(("l1", "with_grad_in"), [(0.0, 1), (0.3, 0)])
def test_gate_backward(cuda, rows, cols, l1, with_grad_in):
    rng = np.random.default_rng(rows * 1000 + cols)
    assert_same(
        cuda,
        "gate_backward",
        x=spiced(rng, (rows, cols)),
        logit=rng.normal(size=cols) * 9,
        grad_out=spiced(rng, (rows, cols)),
        grad_logit=cols,
        grad_in=rows * cols,
        rows=rows,
        cols=cols,
        width=cols - cols // 4,
        l1=l1,
        with_grad_in=with_grad_in,
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize("share", [0, 0.002])
def test_layer_norm(cuda, rows, cols, share):
    rng = np.random.default_rng(rows * 1000 + cols)
    assert_same(
        cuda,
        "layer_norm",
        x=spiced(rng, (rows, cols), share, size=3),
        scale=rng.normal(size=cols),
        shift=rng.normal(size=cols),
        out=rows * cols,
        mean=rows,
        rstd=rows,
        rows=rows,
        cols=cols,
        eps=1e-5,
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize(
    ("share", "scaled", "depth"), [(0, 0, np.nan), (0, 1, 1.25), (0.002, 1, 0.0), (0.002, 1, 0.5)]
)
def test_add_norm(cuda, rows, cols, share, scaled, depth):
    rng = np.random.default_rng(rows * 1000 + cols)
    assert_same(
        cuda,
        "add_norm",
        a=spiced(rng, (rows, cols), share, size=3),
        b=spiced(rng, (rows, cols), share),
        depth=[depth],
        total=rows * cols,
        scale=rng.normal(size=cols),
        shift=rng.normal(size=cols),
        out=rows * cols,
        mean=rows,
        rstd=rows,
        rows=rows,
        cols=cols,
        eps=1e-5,
        scaled=scaled,
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize(
    ("share", "with_residual", "after_relu", "depth"),
    [(0, 0, 0, None), (0, 1, 1, 1.25), (0.002, 1, 0, 0.0), (0.002, 0, 1, None)],
)
def test_layer_norm_grad(cuda, rows, cols, share, with_residual, after_relu, depth):
    rng = np.random.default_rng(rows * 1000 + cols)
    assert_same(
        cuda,
        "layer_norm_grad",
        x=spiced(rng, (rows, cols), share),
        mean=rng.normal(size=rows),
        rstd=rng.uniform(0.1, 3, rows),
        scale=rng.normal(size=cols),
        grad_out=spiced(rng, (rows, cols), share),
        residual=spiced(rng, (rows, cols), share),
        depth=[np.nan if depth is None else depth],
        grad_in=rows * cols,
        grad_branch=rows * cols,
        grad_scale=cols,
        grad_shift=cols,
        rows=rows,
        cols=cols,
        tiles=tile_count(rows, cols),
        with_residual=with_residual,
        after_relu=after_relu,
        with_branch=int(depth is not None),
    )


#: rows, groups, width of a token, heads: single ones, odd ones, half and whole warps, the most, and
#: what just fits and does not fit a warp's shared memory.
ATTENTION = [
    (0, 4, 8, 2),
    (1, 1, 1, 1),
    (3, 5, 6, 3),
    (256, 8, 32, 4),
    (33, 31, 4, 2),
    (9, 32, 8, 1),
    (9, 33, 8, 8),
    (3, 63, 2, 1),
    (5, 64, 4, 4),
    (2, 2, 255, 1),
    (2, 2, 257, 1),
    (2, 1, 511, 1),
    (5, 32, 15, 1),
    (5, 32, 16, 1),
]


@pytest.mark.parametrize(("rows", "groups", "width", "heads"), ATTENTION)
@pytest.mark.parametrize("share", [0, 0.001])
def test_attention_core(cuda, rows, groups, width, heads, share):
    rng = np.random.default_rng(rows * 1000 + groups)
    assert_same(
        cuda,
        "attention_core",
        qkv=spiced(rng, (rows, groups, 3 * width), share, size=2),
        out=rows * groups * width,
        prob=rows * heads * groups * groups,
        rows=rows,
        groups=groups,
        width=width,
        heads=heads,
        scale=(width // heads) ** -0.5,
    )


@pytest.mark.parametrize(("rows", "groups", "width", "heads"), ATTENTION)
@pytest.mark.parametrize("share", [0, 0.001])
def test_attention_core_grad(cuda, rows, groups, width, heads, share):
    rng = np.random.default_rng(rows * 1000 + groups)
    prob = rng.uniform(size=(rows, heads, groups, groups))
    assert_same(
        cuda,
        "attention_core_grad",
        qkv=spiced(rng, (rows, groups, 3 * width), share),
        prob=prob / prob.sum(axis=3, keepdims=True),
        grad_out=spiced(rng, (rows, groups, width), share),
        slope=rows * heads * groups * groups,
        grad_qkv=rows * groups * 3 * width,
        rows=rows,
        groups=groups,
        width=width,
        heads=heads,
        scale=0.7,
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("scale", "scaled"), [(np.nan, 0), (1.25, 1), (0.0, 1), (np.nan, 1)])
def test_scaled_add_and_its_gradient(cuda, n, scale, scaled):
    rng = np.random.default_rng(n)
    a, b = spiced(rng, n), spiced(rng, n)
    assert_same(cuda, "scaled_add", a=a, b=b, scale=[scale], out=n, n=n, scaled=scaled)
    assert_same(cuda, "scaled_add_grad", grad_out=a, scale=[scale], grad_b=n, n=n)


@pytest.mark.parametrize("offsets", [(4, 0, 8), (1, 0, 0), (0, 2, 0), (0, 0, 3)])
def test_scaled_add_wherever_its_arrays_stand(cuda, offsets):
    n = 1031
    rng = np.random.default_rng(n)
    wide = [spiced(rng, n + offset) for offset in offsets]
    a, b, out = (cuda.upload(x).view(offset, (n,)) for x, offset in zip(wide, offsets, strict=True))
    given = [x[offset:] for x, offset in zip(wide, offsets, strict=True)]
    scale = cuda.upload(np.float32([1.25]))
    cuda.run("scaled_add", a=a, b=b, scale=scale, out=out, n=n, scaled=1)
    want = run_host("scaled_add", a=given[0], b=given[1], scale=[1.25], out=n, n=n, scaled=1)
    np.testing.assert_array_equal(out.to_host_checkpoint(), want["out"])
    cuda.run("scaled_add_grad", grad_out=a, scale=scale, grad_b=out, n=n)
    want = run_host("scaled_add_grad", grad_out=given[0], scale=[1.25], grad_b=n, n=n)
    np.testing.assert_array_equal(out.to_host_checkpoint(), want["grad_b"])


@pytest.mark.parametrize("blocks", [0, 1, 3, 31, 32, 33, 500])
@pytest.mark.parametrize("drop", [0.0, 0.3, 1.0, np.nan])
def test_depth_masks(cuda, blocks, drop):
    for step in (0, 1, 77, 2**32 + 3):
        counters = np.zeros(COUNTERS, np.int64)
        counters[Counter.RNG] = step + 1
        assert_same(
            cuda,
            "depth_masks",
            counters=counters,
            scale=blocks,
            blocks=blocks,
            drop=drop,
            seed=0xFEDCBA9876543210,
        )


def test_depth_masks_through_a_run_of_steps(cuda):
    given = {"blocks": 4, "drop": 0.5, "seed": 3, "scale": 4}
    for step in range(200):
        counters = np.zeros(COUNTERS, np.int64)
        counters[Counter.RNG] = step + 1
        got = run_on(cuda, "depth_masks", counters=counters, **given)["scale"]
        want = run_host("depth_masks", counters=counters, **given)["scale"]
        np.testing.assert_array_equal(got, want)
