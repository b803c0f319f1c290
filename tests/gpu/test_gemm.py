"""Matrix multiplication on a GPU: our kernel and cuBLASLt against float64, and bit for bit.

Tolerance: a float32 dot product of K terms, in any order and with or without fused multiply-adds,
errs by at most K u sum|a_i b_i| (1 + O(K u)), u = 2^-24 (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., section 3.1); the bias adds one rounding of the result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from device_rules import UNSUPPORTED, f32, refused

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.base import Matmul, Product
from onegraph.kernels.learner import gemm, gemm_group

pytestmark = pytest.mark.gpu

EPILOGUES = ("none", "bias", "bias_relu", "relu_grad", "bias_grad")

#: around one tile, one chunk of K and one float4, and well beyond each
SHAPES = [
    (1, 1, 1),
    (1, 32, 64),
    (16, 32, 64),
    (17, 33, 65),
    (15, 31, 63),
    (3, 5, 7),
    (64, 64, 64),
    (128, 84, 120),
    (64, 4, 256),
    (100, 256, 37),
    (256, 256, 256),
    (513, 257, 130),
    (64, 512, 512),
    (2, 2, 5000),
]


def operands(spec: Matmul, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((spec.k, spec.m) if spec.trans_a else (spec.m, spec.k))
    b = rng.standard_normal((spec.n, spec.k) if spec.trans_b else (spec.k, spec.n))
    extra = rng.standard_normal(spec.extra_size) if spec.extra_size else None
    cast = np.float32
    return a.astype(cast), b.astype(cast), None if extra is None else extra.astype(cast)


def run(device, spec, a, b, extra, *, offset: int = 0) -> np.ndarray:
    """The product, with each operand `offset` elements into its allocation."""

    def put(values):
        base = device.upload(np.concatenate([np.full(offset, np.nan, np.float32), values.ravel()]))
        return base.view(offset, values.shape)

    out = device.upload(np.full(spec.m * spec.n, np.nan, np.float32))
    given = None if extra is None else put(extra)
    device.matmul(spec, put(a), put(b), out, given)
    if spec.epilogue == "bias_grad":
        # `extra` is a result: the sums of b's columns, by the same bound as a product with ones.
        sums, b64 = given.to_host_checkpoint(), b.astype(np.float64)
        bound = 1.01 * spec.k * 2.0**-24 * np.abs(b64).sum(axis=0) + 1e-45
        assert np.all(np.abs(sums - b64.sum(axis=0)) <= bound)
    return out.to_host_checkpoint().reshape(spec.m, spec.n)


def assert_within_bound(got, spec, a, b, extra) -> None:
    left = (a.T if spec.trans_a else a).astype(np.float64)
    right = (b.T if spec.trans_b else b).astype(np.float64)
    want, unit = left @ right, 2.0**-24
    bound = 1.01 * spec.k * unit * (np.abs(left) @ np.abs(right))
    if spec.epilogue in ("bias", "bias_relu"):
        want = want + extra
        bound = bound + unit * (np.abs(want) + bound)
    if spec.epilogue == "bias_relu":
        want = np.maximum(want, 0)
    elif spec.epilogue == "relu_grad":
        want = np.where(extra.reshape(want.shape) > 0, want, 0)
    bound = bound + 1e-45  # a bound of zero, where everything is
    assert got.dtype == np.float32
    assert np.all(np.abs(got - want) <= bound), np.max(np.abs(got - want) / bound)


@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernel_against_float64(cuda, shape, trans):
    for epilogue in EPILOGUES:
        if epilogue == "bias_grad" and trans[1]:
            continue
        spec = Matmul(*shape, *trans, epilogue)
        a, b, extra = operands(spec)
        assert_within_bound(run(cuda, spec, a, b, extra), spec, a, b, extra)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_host_device_against_float64(shape):
    for epilogue in EPILOGUES:
        spec = Matmul(*shape, epilogue=epilogue)
        a, b, extra = operands(spec)
        assert_within_bound(run(HostDevice(), spec, a, b, extra), spec, a, b, extra)


def raw(device, spec, a, b, *, tile_m: int, max_blocks: int = 4096) -> np.ndarray:
    """The kernel with a tile and a grid of one's choice."""
    out = device.upload(np.full(spec.m * spec.n, np.nan, np.float32))
    left, right = device.upload(a), device.upload(b)
    device.run(
        "gemm",
        a=left,
        b=right,
        extra=left,
        out=out,
        m=spec.m,
        n=spec.n,
        k=spec.k,
        trans_a=int(spec.trans_a),
        trans_b=int(spec.trans_b),
        epilogue=gemm.NONE,
        tile_m=tile_m,
        tiles_m=-(-spec.m // tile_m),
        tiles_n=-(-spec.n // gemm.TILE_N),
        max_blocks=max_blocks,
    )
    return out.to_host_checkpoint().reshape(spec.m, spec.n)


@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(17, 33, 65), (100, 256, 37), (128, 84, 120), (2, 2, 4000)])
def test_bits_depend_on_neither_tile_grid_nor_alignment(cuda, shape, trans):
    spec = Matmul(*shape, *trans)
    a, b, _ = operands(spec)
    want = run(cuda, spec, a, b, None)
    for tile_m in (8, 16, 32):
        for max_blocks in (1, 2, 4096):
            got = raw(cuda, spec, a, b, tile_m=tile_m, max_blocks=max_blocks)
            np.testing.assert_array_equal(got, want)
    for offset in (1, 2, 4):
        np.testing.assert_array_equal(run(cuda, spec, a, b, None, offset=offset), want)
    np.testing.assert_array_equal(run(cuda, spec, a, b, None), want)


def test_twin_and_kernel_on_the_same_call(cuda):
    """Both sum K in another order: hence a bound (each one's own error) and not equal bits."""
    for shape in SHAPES:
        spec = Matmul(*shape)
        a, b, _ = operands(spec, seed=1)
        for device in (HostDevice(), cuda):
            assert_within_bound(raw(device, spec, a, b, tile_m=8), spec, a, b, None)


#: Of different shapes, transposes and epilogues; K of one chunk and of several.
MEMBERS = (
    Matmul(64, 256, 256, trans_b=True, epilogue="relu_grad"),
    Matmul(256, 256, 64, trans_a=True, epilogue="bias_grad"),
    Matmul(17, 33, 65, epilogue="bias_relu"),
    Matmul(3, 5, 7, trans_a=True, trans_b=True),
)


def products(device, specs) -> list[Product]:
    """The same ones each time."""
    made = []
    for spec in specs:
        a, b, extra = operands(spec)
        out = device.upload(np.full(spec.m * spec.n, np.nan, np.float32))
        more = () if extra is None else (device.upload(extra),)
        made.append(Product(spec, device.upload(a), device.upload(b), out, *more))
    return made


def assert_equal_results(one, other) -> None:
    for mine, theirs in zip(one, other, strict=True):
        for x, y in zip(mine.operands, theirs.operands, strict=True):
            np.testing.assert_array_equal(x.to_host_checkpoint(), y.to_host_checkpoint())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_group_gives_the_bits_of_separate_calls(cuda, count):
    apart, at_once = (products(cuda, MEMBERS[:count]) for _ in range(2))
    for p in apart:
        cuda.matmul(p.spec, p.a, p.b, p.out, p.extra)
    cuda.matmul_group(at_once)
    assert_equal_results(at_once, apart)


@pytest.mark.parametrize("tile_m", [8, 16, 32])
@pytest.mark.parametrize("max_blocks", [1, 3, 4096])
def test_a_group_of_any_tiles_on_any_grid(cuda, tile_m, max_blocks):
    apart, at_once = (products(cuda, MEMBERS) for _ in range(2))
    for p in apart:
        cuda.matmul(p.spec, p.a, p.b, p.out, p.extra)
    args, tiles = {}, 0
    for i, p in enumerate(at_once):
        epilogue = getattr(gemm, p.spec.epilogue.upper())
        form = gemm_group.form(epilogue, tile_m, trans_a=p.spec.trans_a, trans_b=p.spec.trans_b)
        tiles += -(-p.spec.m // tile_m) * -(-p.spec.n // gemm.TILE_N)
        extra = p.a if p.extra is None else p.extra
        args |= {f"a{i}": p.a, f"b{i}": p.b, f"extra{i}": extra, f"out{i}": p.out}
        args |= {f"m{i}": p.spec.m, f"n{i}": p.spec.n, f"k{i}": p.spec.k, f"form{i}": form}
    cuda.run("gemm_group", **args, tiles=tiles, max_blocks=max_blocks)
    assert_equal_results(at_once, apart)


@pytest.mark.parametrize("epilogue", ["none", "bias", "bias_relu", "relu_grad"])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("cuts", "n", "k"), [((1, 3, 2), 5, 7), ((300, 1, 211), 256, 64)])
def test_rows_that_follow_one_another_are_one_product(cuda, cuts, n, k, trans_b, epilogue):
    """By the small tiles and by the large ones, in parts that end where no vector does.

    Of whole numbers, whose sums are exact: a host multiplies a single row in another order.
    """
    whole = Matmul(sum(cuts), n, k, trans_b=trans_b, epilogue=epilogue)
    a, b, extra = (x if x is None else np.rint(3 * x) for x in operands(whole))
    other, *_ = products(cuda, MEMBERS[:1])
    left, right = cuda.upload(a), cuda.upload(b)
    more = None if extra is None else cuda.upload(extra)

    def by(parts) -> np.ndarray:
        out = cuda.upload(np.full(whole.m * n, np.nan, np.float32))
        members, first = [], 0
        for rows in parts:
            mask = more
            if epilogue == "relu_grad":
                mask = more.view(first * n, (rows * n,))
            spec = replace(whole, m=rows)
            from_, to = left.view(first * k, (rows * k,)), out.view(first * n, (rows * n,))
            members.append(Product(spec, from_, right, to, mask))
            first += rows
        cuda.matmul_group([*members, other])
        return out.to_host_checkpoint()

    np.testing.assert_array_equal(by(cuts), by([whole.m]))


def test_a_group_is_one_node_as_the_driver_counts(cuda):
    spec = Matmul(64, 64, 64)
    a, b, _ = operands(spec)
    left, right = cuda.upload(a), cuda.upload(b)
    group = [Product(spec, left, right, cuda.allocate((64, 64), "f32")) for _ in range(2)]
    with cuda.warm_up():
        cuda.matmul_group(group, module="graphed")
    with cuda.capture("g") as graph:
        cuda.matmul_group(group, module="graphed")
    assert cuda.driver_node_count(graph) == 1


def test_nan_and_infinity_reach_their_row_and_column_only(cuda):
    spec = Matmul(40, 40, 70)
    a, b, _ = operands(spec)
    a[3, 69], b[5, 39] = np.nan, np.inf
    got = run(cuda, spec, a, b, None)
    wrong = ~np.isfinite(got)
    assert wrong[3].all()
    assert wrong[:, 39].all()
    wrong[3], wrong[:, 39] = False, False
    assert not wrong.any()


def test_output_beyond_the_matrix_is_left_alone(cuda):
    spec = Matmul(17, 33, 5)
    a, b, _ = operands(spec)
    guard = cuda.upload(np.full(17 * 33 + 64, 7, np.float32))
    cuda.matmul(spec, cuda.upload(a), cuda.upload(b), guard.view(32, (17, 33)))
    out = guard.to_host_checkpoint()
    assert (out[:32] == 7).all()
    assert (out[-32:] == 7).all()
    assert (out[32:-32] != 7).all()


@pytest.mark.parametrize("n", [0, 1, 3, 4, 7, 255, 257, 4099, 9000])
@pytest.mark.parametrize("grad", [0, 1])
@pytest.mark.parametrize(("of_extra", "of_out"), [(0, 0), (4, 8), (1, 0), (0, 3)])
def test_relu_epilogue_equals_its_twin(cuda, n, grad, of_extra, of_out):
    """Wherever the arrays stand; what stands before and behind them is left alone."""
    rng = np.random.default_rng(n)
    extra = rng.standard_normal(n + of_extra).astype(np.float32)
    out = rng.standard_normal(n + of_out + 5).astype(np.float32)
    extra[::7], out[::5], out[::11] = np.nan, np.nan, -0.0
    for max_blocks in (1, 2, 4096):
        results = []
        for device in (HostDevice(), cuda):
            target = device.upload(out)
            device.run(
                "relu_epilogue",
                extra=device.upload(extra).view(of_extra, (n,)) if n else device.upload(extra),
                out=target.view(of_out, (n,)) if n else target,
                n=n,
                grad=grad,
                max_blocks=max_blocks,
            )
            results.append(target.to_host_checkpoint())
        np.testing.assert_array_equal(results[0].view(np.int32), results[1].view(np.int32))


# -------------------------------------------------------------------- cuBLASLt


@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cublaslt_against_float64(cublaslt, shape, trans):
    for epilogue in EPILOGUES:
        if epilogue == "bias_grad" and trans[1]:
            continue
        spec = Matmul(*shape, *trans, epilogue)
        a, b, extra = operands(spec)
        assert_within_bound(run(cublaslt, spec, a, b, extra), spec, a, b, extra)


def test_cublaslt_takes_unaligned_operands(cublaslt):
    spec = Matmul(100, 256, 36, epilogue="bias_relu")
    a, b, extra = operands(spec)
    assert_within_bound(run(cublaslt, spec, a, b, extra, offset=1), spec, a, b, extra)


def test_cublaslt_keeps_nan_and_infinity(cublaslt):
    spec = Matmul(2, 2, 1, epilogue="bias_relu")
    got = run(
        cublaslt, spec, f32(1, np.inf).reshape(2, 1), f32(np.nan, -1).reshape(1, 2), f32(0, 0)
    )
    np.testing.assert_array_equal(got, [[np.nan, 0], [np.nan, 0]])


@pytest.mark.parametrize("epilogue", ["none", "bias_relu"])
def test_cublaslt_in_tf32(cublaslt, epilogue):
    """Factors with 11 significant bits, rounded or cut: each errs by at most 2^-10 of itself."""
    spec = Matmul(256, 256, 512, epilogue=epilogue, precision="tf32")
    a, b, extra = operands(spec)
    got = run(cublaslt, spec, a, b, extra)
    want = a.astype(np.float64) @ b.astype(np.float64)
    bound = 2.1 * 2.0**-10 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
    if extra is not None:
        want = np.maximum(want + extra, 0)
    assert np.all(np.abs(got - want) <= bound + 1e-5)
    float32 = run(cublaslt, replace(spec, precision="float32"), a, b, extra)
    assert (got != float32).any()


def test_cublaslt_takes_three_tf32_products_in_float32(cublaslt):
    spec = Matmul(40, 24, 4096, precision="tf32x3")
    a, b, extra = operands(spec)
    assert_within_bound(run(cublaslt, spec, a, b, extra), spec, a, b, extra)


def test_bias_of_each_call_is_its_own(cublaslt):
    """One descriptor serves all calls of a shape; its bias pointer must not stick."""
    spec = Matmul(64, 64, 64, epilogue="bias")
    a, b, _ = operands(spec)
    device = cublaslt
    left, right = device.upload(a), device.upload(b)
    biases = [device.upload(np.full(64, c, np.float32)) for c in (0, 1000)]
    outs = [device.allocate((64, 64), "f32") for _ in biases]
    for _ in range(2):
        for bias, out in zip(biases, outs, strict=True):
            device.matmul(spec, left, right, out, bias)
    low, high = (out.to_host_checkpoint() for out in outs)
    assert np.all(high - low > 999)
    with device.capture("g") as graph:
        for bias, out in zip(biases, outs, strict=True):
            device.matmul(spec, left, right, out, bias)
    for out in outs:
        device.memset(out)
    device.graph_launch(device.instantiate(graph))
    np.testing.assert_array_equal(outs[0].to_host_checkpoint(), low)
    np.testing.assert_array_equal(outs[1].to_host_checkpoint(), high)


def test_shape_first_seen_while_capturing(cublaslt):
    device, spec = cublaslt, Matmul(48, 48, 48)
    x, out = device.allocate((48, 48), "f32"), device.allocate((48, 48), "f32")
    with refused(UNSUPPORTED, "plan Matmul"), device.capture("g"):
        device.matmul(spec, x, x, out)
    device.matmul(spec, x, x, out)
    with device.capture("g"):
        device.matmul(spec, x, x, out)


@pytest.mark.parametrize("backend", ["cuda", "cublaslt"])
@pytest.mark.parametrize(("shape", "nodes"), [((256, 64, 256), 1), ((512, 512, 512), 1)])
def test_graph_computes_the_bits_of_the_eager_call(request, backend, shape, nodes):
    device, spec = request.getfixturevalue(backend), Matmul(*shape)
    a, b, _ = operands(spec)
    left, right = device.upload(a), device.upload(b)
    out = device.allocate((spec.m, spec.n), "f32")
    with device.warm_up():
        device.matmul(spec, left, right, out, module="graphed")
    eager = out.to_host_checkpoint()
    with device.capture("g") as graph:
        device.matmul(spec, left, right, out, module="graphed")
    assert device.driver_node_count(graph) == nodes  # split K would make it two
    executable = device.instantiate(graph)
    for _ in range(3):
        device.memset(out)
        device.graph_launch(executable)
        np.testing.assert_array_equal(out.to_host_checkpoint(), eager)
    device.matmul(spec, left, right, out)
    np.testing.assert_array_equal(out.to_host_checkpoint(), eager)


def test_auto_goes_by_the_shape(cuda):
    if "cuBLASLt" not in cuda.matmul_backend or "no cuBLASLt" in cuda.matmul_backend:
        pytest.skip(f"auto has one backend only: {cuda.matmul_backend}")
    assert cuda._uses_cublaslt(Matmul(1024, 1024, 1024))
    assert not cuda._uses_cublaslt(Matmul(1024, 1024, 1023))
    assert not cuda._uses_cublaslt(Matmul(1024, 1024, 1024, precision="tf32x3"))
    assert not cuda._uses_cublaslt(Matmul(0, 1024, 1024))


def test_large_relu_grad_through_auto(cuda):
    spec = Matmul(1024, 1024, 1040, trans_a=True, epilogue="relu_grad")
    a, b, extra = operands(spec)
    assert_within_bound(run(cuda, spec, a, b, extra), spec, a, b, extra)
