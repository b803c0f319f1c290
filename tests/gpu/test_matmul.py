"""Matrix products by large tiles on a GPU: against float64, and bit for bit among themselves.

Tolerances, relative to the sum of ``|a_i b_i|`` (see test_gemm.py for the first):

- float32: K u, with u = 2^-24.
- TF32: each factor errs by at most .67 x 2^-10 of itself, and sums are truncated: K 2^-23.
- three TF32 products: what two TF32 numbers leave of a factor is at most 2^-21 of it, the product
  left out 2^-20, and sums as with TF32.
"""

from __future__ import annotations

import numpy as np
import pytest
from gpu.test_gemm import operands

from onegraph.kernels.device.base import Matmul
from onegraph.kernels.learner import gemm, matmul

pytestmark = pytest.mark.gpu

PRECISIONS = ("float32", "tf32", "tf32x3")
FACTORS = {"float32": 0.0, "tf32": 2.02 * 0.67 * 2.0**-10, "tf32x3": 2.0**-19}

#: Around each tile, chunk and four floats; one, odd, and of more chunks than are in flight.
SHAPES = [
    (1, 1, 1),
    (3, 5, 7),
    (16, 8, 64),
    (17, 7, 65),
    (33, 31, 129),
    (64, 64, 32),
    (65, 66, 34),
    (128, 128, 96),
    (130, 132, 100),
    (129, 131, 333),
    (2, 2, 1000),
    (257, 8, 512),
]
FORMS = [(False, False, "none"), (False, False, "bias_relu"), (False, False, "bias"),
         (True, False, "bias_grad"), (True, False, "none"), (False, True, "relu_grad")]  # fmt: skip


def run(device, precision, specs, given, *, tile=None, split=1, max_blocks=4096, offset=0):
    """Outputs and extras of a launch, its operands `offset` elements into their allocations."""

    def put(values):
        base = device.upload(np.concatenate([np.full(offset, np.nan, np.float32), values.ravel()]))
        return base.view(offset, (values.size,))

    products, results = [], []
    for spec, (a, b, extra) in zip(specs, given, strict=True):
        out = put(np.full(spec.m * spec.n, np.nan, np.float32))
        more = put(np.zeros(1, np.float32) if extra is None else extra)
        size, epilogue = (spec.m, spec.n, spec.k), getattr(gemm, spec.epilogue.upper())
        products.append((put(a), put(b), more, out, size, epilogue, spec.trans_a, spec.trans_b))
        results.append((out, more))
    args = matmul.arguments(products)
    if tile is not None:
        args |= {"turns": 0, "cluster": split, "shared_bytes": matmul.TILES[tile].shared_bytes}
        for i, (*_, (m, n, _), epilogue, trans_a, trans_b) in enumerate(products):
            packed = matmul.form(epilogue, tile, split, trans_a=trans_a, trans_b=trans_b)
            args |= {f"form{i}": packed}
            args["turns"] += matmul.turns_of(m, n, tile, split, split)
    device.run(f"matmul_{precision}", **args, max_blocks=max_blocks)
    return [tuple(x.to_host_checkpoint() for x in result) for result in results]


def check(got, precision, spec, a, b, extra) -> None:
    out, more = got
    left = (a.T if spec.trans_a else a).astype(np.float64)
    right = (b.T if spec.trans_b else b).astype(np.float64)
    want, unit = left @ right, 2.0**-24
    rounding = spec.k * unit * (1 if precision == "float32" else 2)
    bound = 1.01 * (rounding + FACTORS[precision]) * (np.abs(left) @ np.abs(right))
    if spec.epilogue in ("bias", "bias_relu"):
        want = want + extra
        bound = bound + unit * (np.abs(want) + bound)
    if spec.epilogue == "bias_relu":
        want = np.maximum(want, 0)
    elif spec.epilogue == "relu_grad":
        want = want * (extra.reshape(want.shape) > 0)
        bound = bound * (extra.reshape(want.shape) > 0)
    elif spec.epilogue == "bias_grad":
        sums = 1.01 * spec.k * unit * np.abs(right).sum(axis=0) + 1e-45
        assert np.all(np.abs(more - right.sum(axis=0)) <= sums)
    assert np.all(np.abs(out.reshape(want.shape) - want) <= bound + 1e-45)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tile", range(len(matmul.TILES)))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(cuda, shape, tile, precision):
    for trans_a, trans_b, epilogue in FORMS:
        spec = Matmul(*shape, trans_a, trans_b, epilogue)
        given = operands(spec)
        for split in (1, 2, 4) if cuda.largest_cluster > 1 else (1,):
            got = run(cuda, precision, [spec], [given], tile=tile, split=split)
            check(got[0], precision, spec, *given)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tile", range(len(matmul.TILES)))
def test_bits_depend_on_neither_grid_nor_alignment(cuda, tile, precision):
    split = min(2, cuda.largest_cluster)
    for trans_a, trans_b, epilogue in FORMS:
        spec = Matmul(130, 36, 68, trans_a, trans_b, epilogue)
        given = operands(spec)
        want = run(cuda, precision, [spec], [given], tile=tile, split=split)
        for changed in ({"max_blocks": 1}, {"max_blocks": 6}, {"offset": 1}, {"offset": 4}):
            got = run(cuda, precision, [spec], [given], tile=tile, split=split, **changed)
            for x, y in zip(got[0], want[0], strict=True):
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_group_gives_what_its_members_give(cuda, precision):
    """Narrow and wide, split and not, in one launch; each against its own bound."""
    specs = [
        Matmul(512, 8, 2048, epilogue="bias"),
        Matmul(64, 256, 1024, trans_a=True, epilogue="bias_grad"),
        Matmul(300, 256, 64, epilogue="bias_relu"),
        Matmul(33, 65, 17, trans_b=True, epilogue="relu_grad"),
    ]
    given = [operands(spec) for spec in specs]
    for count in (2, 3, 4):
        got = run(cuda, precision, specs[:count], given[:count])
        for result, spec, mine in zip(got, specs, given, strict=False):
            check(result, precision, spec, *mine)
        again = run(cuda, precision, specs[:count], given[:count], max_blocks=5)
        for one, other in zip(got, again, strict=True):
            for x, y in zip(one, other, strict=True):
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nan_and_infinity_reach_their_row_and_column_only(cuda, precision):
    spec = Matmul(140, 140, 70, epilogue="bias_relu")
    a, b, extra = operands(spec)
    # The NaN of a GPU's own arithmetic, whose bits are all set.
    a[3, 69] = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
    b[5, 139] = np.nan
    for tile in range(len(matmul.TILES)):
        out, _ = run(cuda, precision, [spec], [(a, b, extra)], tile=tile)[0]
        wrong = np.isnan(out.reshape(140, 140))
        assert wrong[3].all()
        assert wrong[:, 139].all()
        wrong[3], wrong[:, 139] = False, False
        assert not wrong.any()


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_a_device_takes_the_precision_where_products_are_large(cuda, precision):
    """Small ones stay at float32, bit for bit."""
    small = Matmul(64, 64, 64)
    large = Matmul(512, 512, 256, epilogue="bias_relu")
    for spec, same in ((small, True), (large, False)):
        a, b, extra = operands(spec)
        results = []
        for chosen in ("float32", precision):
            out = cuda.upload(np.zeros(spec.m * spec.n, np.float32))
            asked = Matmul(spec.m, spec.n, spec.k, epilogue=spec.epilogue, precision=chosen)
            bias = () if extra is None else (cuda.upload(extra),)
            cuda.matmul(asked, cuda.upload(a), cuda.upload(b), out, *bias)
            results.append(out.to_host_checkpoint())
        assert np.array_equal(*results) is same
        check((results[1], extra), precision, spec, a, b, extra)
