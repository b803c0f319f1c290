"""Products with long sums on a GPU: against float64, and bit for bit among themselves.

Tolerance, relative to the sum of ``|a_i b_i|``: a unit of 2^-24 for each addition that a term goes
through: those of its warp, then of the warps, the shares of a group and the groups.
"""

from __future__ import annotations

import numpy as np
import pytest
from device_rules import UNSUPPORTED, refused
from gpu.test_gemm import assert_equal_results, operands, products

from onegraph.kernels.device.base import Matmul, Product
from onegraph.kernels.learner import gemm, matmul_long

pytestmark = pytest.mark.gpu

#: Around each tile, chunk, share and four floats; none, one, odd.
SHAPES = [
    (1, 1, 1),
    (1, 1, 0),
    (3, 5, 7),
    (64, 64, 32),
    (65, 66, 129),
    (63, 8, 257),
    (64, 9, 256),
    (66, 3, 900),
    (130, 68, 1300),
    (64, 7, 4097),
    (2, 2, 5000),
    (64, 256, 8192),
    (256, 3, 8192),
    (70, 72, 40_000),
]
EPILOGUES = ("none", "bias", "bias_relu", "relu_grad", "bias_grad")


def run(device, specs, given, *, parts=None, max_blocks=4096, offset=0):
    """Outputs and extras of a launch, its operands `offset` elements into their allocations."""

    def put(values):
        base = device.upload(np.concatenate([np.full(offset, np.nan, np.float32), values.ravel()]))
        return base.view(offset, (values.size,))

    members, results = [], []
    for spec, (a, b, extra) in zip(specs, given, strict=True):
        out = put(np.full(spec.m * spec.n, np.nan, np.float32))
        more = put(np.zeros(1, np.float32) if extra is None else extra)
        size, epilogue = (spec.m, spec.n, spec.k), getattr(gemm, spec.epilogue.upper())
        members.append((put(a), put(b), more, out, size, epilogue))
        results.append((out, more))
    args = matmul_long.arguments(members)
    slots = matmul_long.slots([size for *_, size, _ in members])
    if parts is not None:
        ((*_, (m, n, _), epilogue),) = members
        slots = matmul_long.tiles(m, n) * parts
        args["form0"] = matmul_long.form(epilogue, parts, narrow=matmul_long.is_narrow(n))
        args["blocks"] = slots
    scratch = device.upload(np.full(max(1, slots) * matmul_long.SLOT, np.nan, np.float32))
    tickets = device.upload(np.zeros(max(1, slots), np.uint32))
    device.run("matmul_long", **args, scratch=scratch, tickets=tickets, max_blocks=max_blocks)
    assert not tickets.to_host_checkpoint().any()
    return [tuple(x.to_host_checkpoint() for x in result) for result in results]


def additions(m: int, n: int, k: int, parts: int) -> int:
    """The most that a term of a sum goes through."""
    chunks = -(-k // matmul_long.DEPTH)
    run = -(-chunks // parts) * matmul_long.DEPTH
    warps = 8 if matmul_long.is_narrow(n) else 4
    fan = max(2, int(np.ceil(np.sqrt(parts))))
    return run // warps + warps + 2 * fan


def check(got, spec, a, b, extra, parts=None) -> None:
    out, more = got
    left, right = a.T.astype(np.float64), b.astype(np.float64)
    parts = parts or matmul_long.shares(spec.m, spec.n, spec.k)
    unit = 2.0**-24
    rounding = 1.01 * unit * additions(spec.m, spec.n, spec.k, parts)
    want, bound = left @ right, rounding * (np.abs(left) @ np.abs(right))
    if spec.epilogue in ("bias", "bias_relu"):
        want = want + extra
        bound = bound + unit * (np.abs(want) + bound)
    if spec.epilogue == "bias_relu":
        want = np.maximum(want, 0)
    elif spec.epilogue == "relu_grad":
        want = want * (extra.reshape(want.shape) > 0)
        bound = bound * (extra.reshape(want.shape) > 0)
    elif spec.epilogue == "bias_grad":
        # Each thread has a share of a column's chunk: 32 of them at most, which are added up.
        sums = (rounding + 32 * unit) * np.abs(right).sum(axis=0) + 1e-45
        assert np.all(np.abs(more - right.sum(axis=0)) <= sums)
    assert np.all(np.abs(out.reshape(want.shape) - want) <= bound + 1e-45)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(cuda, shape, epilogue):
    spec = Matmul(*shape, trans_a=True, epilogue=epilogue)
    given = operands(spec)
    check(run(cuda, [spec], [given])[0], spec, *given)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 9, 10, 17, 128])
@pytest.mark.parametrize("shape", [(65, 66, 700), (66, 3, 700)], ids=str)
def test_any_number_of_shares(cuda, shape, parts):
    """More than there are chunks too: some then have nothing to do."""
    spec = Matmul(*shape, trans_a=True, epilogue="bias_grad")
    given = operands(spec)
    check(run(cuda, [spec], [given], parts=parts)[0], spec, *given, parts=parts)


@pytest.mark.parametrize("shape", [(130, 36, 1284), (132, 4, 1284), (65, 7, 4099)], ids=str)
def test_bits_depend_on_neither_grid_nor_alignment(cuda, shape):
    for epilogue in EPILOGUES:
        spec = Matmul(*shape, trans_a=True, epilogue=epilogue)
        given = operands(spec)
        want = run(cuda, [spec], [given])
        for changed in ({"max_blocks": 1}, {"max_blocks": 6}, {"offset": 1}, {"offset": 4}):
            got = run(cuda, [spec], [given], **changed)
            for x, y in zip(got[0], want[0], strict=True):
                np.testing.assert_array_equal(x, y)


#: Shared out and not, narrow and not.
MEMBERS = [
    Matmul(64, 256, 8192, trans_a=True, epilogue="bias_grad"),
    Matmul(256, 3, 8192, trans_a=True, epilogue="bias_grad"),
    Matmul(33, 65, 4100, trans_a=True),
    Matmul(600, 200, 4096, trans_a=True, epilogue="bias"),
]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_group_gives_the_bits_of_separate_calls(cuda, count):
    assert all(spec.is_long for spec in MEMBERS)
    apart, at_once = (products(cuda, MEMBERS[:count]) for _ in range(2))
    for p in apart:
        cuda.matmul(p.spec, p.a, p.b, p.out, p.extra)
    cuda.matmul_group(at_once)
    assert_equal_results(at_once, apart)
    for p in at_once:
        a, b, extra = operands(p.spec)
        more = extra if p.extra is None else p.extra.to_host_checkpoint()
        check((p.out.to_host_checkpoint(), more), p.spec, a, b, extra)


@pytest.mark.parametrize("max_blocks", [1, 5, 4096])
def test_a_group_on_any_grid(cuda, max_blocks):
    given = [operands(spec) for spec in MEMBERS]
    want = run(cuda, MEMBERS, given)
    got = run(cuda, MEMBERS, given, max_blocks=max_blocks)
    for one, other in zip(got, want, strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_array_equal(x, y)


def test_nan_and_infinity_reach_their_row_and_column_only(cuda):
    for n, narrow in ((140, False), (7, True)):
        spec = Matmul(140, n, 5000, trans_a=True, epilogue="bias_relu")
        assert matmul_long.is_narrow(n) is narrow
        a, b, extra = operands(spec)
        a[4999, 3], b[17, n - 1] = np.nan, np.nan
        ((out, _),) = run(cuda, [spec], [(a, b, extra)])
        wrong = np.isnan(out.reshape(140, n))
        assert wrong[3].all()
        assert wrong[:, n - 1].all()
        wrong[3], wrong[:, n - 1] = False, False
        assert not wrong.any()


def test_a_captured_group_is_one_node_and_each_replay_gives_the_same(device):
    """With the scratch that it was captured with, which it keeps."""
    group = products(device, MEMBERS)
    with device.warm_up():
        device.matmul_group(group, module="graphed")
    want = [p.out.to_host_checkpoint() for p in group]
    with device.capture("g") as graph:
        device.matmul_group(group, module="graphed")
    assert device.driver_node_count(graph) == 1
    executable = device.instantiate(graph)
    device._drop_scratch()
    for _ in range(200):
        for p in group:
            device.memset(p.out)
        device.graph_launch(executable)
        for p, mine in zip(group, want, strict=True):
            np.testing.assert_array_equal(p.out.to_host_checkpoint(), mine)


def test_scratch_is_not_made_while_capturing(device):
    (p,) = products(device, MEMBERS[:1])
    with refused(UNSUPPORTED, "allocate scratch of matmul"), device.capture("g"):
        device.matmul(p.spec, p.a, p.b, p.out, p.extra)


def test_products_of_one_output_share_their_scratch_which_goes_with_it(device):
    first, second = products(device, [MEMBERS[0]] * 2)
    again = Product(second.spec, second.a, second.b, first.out, first.extra)
    for p in (first, second, again):
        device.matmul(p.spec, p.a, p.b, p.out, p.extra)
    assert len(device._scratches) == 2
    device.free(first.out)
    assert set(device._scratches) == {second.out.ptr}
