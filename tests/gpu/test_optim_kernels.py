"""Kernels around the optimiser against their twins, bit for bit."""

import numpy as np
import pytest
from pair_runs import assert_same

from onegraph.kernels.common.layout import ADAM_GROUPS, COUNTERS, Counter
from onegraph.kernels.learner.budget import Component
from onegraph.kernels.learner.noisy import NoisyLayer, NoisyPass
from onegraph.kernels.learner.spectral import SpectralMatrix

pytestmark = pytest.mark.gpu

#: None, one, odd, a block, just more, and many blocks' worth.
SIZES = [0, 1, 7, 255, 256, 257, 1001, 70_003]
PARTS = [1, 3, 64]


def ends_of(n, rng):
    """Ranges that begin and end anywhere; some are empty, and the last elements may have none."""
    ends = np.sort(rng.integers(0, n + 1, size=ADAM_GROUPS))
    ends[rng.integers(ADAM_GROUPS - 1)] = 0  # what follows begins where the one before ends
    return ends


def gradients(n, rng, *, bad=False):
    grad, aux = rng.normal(size=(2, n)).astype(np.float32)
    if bad and n > 2:
        grad[rng.integers(n)], aux[rng.integers(n)] = np.nan, np.inf
    return grad, aux


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("with_aux", [0, 1])
def test_component_norms(cuda, n, parts, with_aux):
    rng = np.random.default_rng(n + parts)
    for bad in (False, True):
        grad, aux = gradients(n, rng, bad=bad)
        assert_same(
            cuda,
            "component_norms",
            grad=grad,
            aux=aux,
            ends=ends_of(n, rng),
            squares=8 * parts,
            n=n,
            parts=parts,
            with_aux=with_aux,
        )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("with_aux", [0, 1])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 1e9])
def test_apply_budget(cuda, n, parts, with_aux, max_norm):
    rng = np.random.default_rng(n + parts)
    for bad in (False, True):
        grad, aux = gradients(n, rng, bad=bad)
        squares = rng.uniform(size=(8, parts))
        if bad:
            squares[1, 0], squares[4, -1] = np.nan, np.inf
        shares = rng.uniform(size=len(Component))
        shares[rng.integers(6)] = 0
        assert_same(
            cuda,
            "apply_budget",
            grad=grad,
            aux=aux,
            ends=ends_of(n, rng),
            squares=squares,
            shares=shares / shares.sum(),
            norms=6,
            scales=6,
            partial=parts,
            n=n,
            parts=parts,
            with_aux=with_aux,
            max_norm=max_norm,
        )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("parts", PARTS)
def test_vaccine_partial(cuda, n, parts):
    grad, vaccine = gradients(n, np.random.default_rng(n))
    assert_same(
        cuda, "vaccine_partial", grad=grad, vaccine=vaccine, dots=2 * parts, n=n, parts=parts
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("cross", [-1, 0, 1, np.nan, -np.inf])
def test_project_gradient(cuda, n, parts, cross):
    rng = np.random.default_rng(n)
    grad, vaccine = gradients(n, rng)
    dots = rng.uniform(size=(2, parts))
    dots[0] *= cross
    assert_same(
        cuda,
        "project_gradient",
        grad=grad,
        vaccine=vaccine,
        dots=dots,
        removed=1,
        partial=parts,
        n=n,
        parts=parts,
    )


#: Shapes of noisy layers: none, the least, around a tile, and many tiles.
NOISY = [[], [(1, 1)], [(31, 32)], [(32, 33), (7, 1)], [(33, 34), (5, 1), (64, 31)], [(300, 257)]]


def noisy_arguments(shapes):
    """A table of layers of these shapes, with gaps between their tensors, and the sizes."""
    rows, at, factor, tile = [], 3, 0, 0
    for fan_in, fan_out in shapes:
        sizes = [fan_in * fan_out, fan_out] * 2
        starts = [at + sum(sizes[:i]) + i for i in range(4)]
        rows.append(NoisyLayer(*starts, fan_in, fan_out, factor, tile))
        at, factor, tile = at + sum(sizes) + 5, factor + fan_in + fan_out, tile + rows[-1].tiles
    return np.array(rows, np.int64), at, factor, tile


@pytest.mark.parametrize("shapes", NOISY, ids=str)
@pytest.mark.parametrize(
    ("first", "passes"), [(NoisyPass.ONLINE, 3), (NoisyPass.ONLINE, 2), (NoisyPass.ACT, 1)]
)
def test_noisy_weights(cuda, shapes, first, passes):
    table, size, factors, tiles = noisy_arguments(shapes)
    rng = np.random.default_rng(size)
    params, target = rng.normal(size=(2, size)).astype(np.float32)
    params[size // 2], target[size // 3] = np.nan, np.inf
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.COLLECT] = 2**32 + 5, 77
    assert_same(
        cuda,
        "noisy_weights",
        params=params,
        target=target,
        table=table,
        counters=counters,
        out0=np.zeros(size),
        out1=np.zeros(size),
        out2=np.zeros(size),
        factors=factors,
        layers=len(shapes),
        tiles=tiles,
        first=first,
        passes=passes,
        seed=0xFEDCBA9876543210,
    )


@pytest.mark.parametrize("shapes", NOISY, ids=str)
def test_noisy_grad(cuda, shapes):
    table, size, factors, tiles = noisy_arguments(shapes)
    rng = np.random.default_rng(size)
    assert_same(
        cuda,
        "noisy_grad",
        grad=rng.normal(size=size),
        factors=rng.normal(size=factors),
        table=table,
        layers=len(shapes),
        tiles=tiles,
    )


#: Shapes of matrices: none, the least, around a warp and a tile, large, and beyond shared memory.
MATRICES = [
    [],
    [(1, 1)],
    [(31, 33), (1, 40)],
    [(32, 128)],
    [(33, 130), (5, 1)],
    [(300, 517)],
    [(3, 2500), (1100, 2)],
]


def spectral_arguments(shapes):
    """Parameters of both networks with these matrices in each, the table and unit vectors."""
    rows, at, vectors = [], 3, 0
    for source in (0, 1):
        for height, width in shapes:
            rows.append(SpectralMatrix(source, at, height, width, vectors))
            at, vectors = at + height * width + 5, vectors + height + width
    rng = np.random.default_rng(at)
    params, target = rng.normal(size=(2, at)).astype(np.float32)
    unit = np.zeros(vectors, np.float32)
    for matrix in rows:
        for part in matrix.uv(unit):
            drawn = rng.normal(size=part.shape)
            part[:] = drawn / np.linalg.norm(drawn)
    return params, target, np.array(rows, np.int64), unit


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
@pytest.mark.parametrize("iterate", [1, 0])
@pytest.mark.parametrize(("tiles", "parts"), [(1, 1), (3, 7), (20, 64)])
def test_spectral_iteration(cuda, shapes, iterate, tiles, parts):
    params, target, table, vectors = spectral_arguments(shapes)
    for spoil in ("nothing", "a NaN", "zeros", "an overflow"):
        if spoil == "a NaN" and len(params) > 20:
            params[4], target[len(params) // 2] = np.nan, np.inf
        elif spoil == "zeros":
            params[:] = 0
        elif spoil == "an overflow":
            params[:] = 3e38
        given = {
            "params": params,
            "target": target,
            "table": table,
            "vectors": vectors,
            "raw": np.full(len(vectors), np.nan, np.float32),
            "count": len(table),
        }
        if iterate:
            given |= assert_same(cuda, "spectral_left", **given, tiles=tiles)
        given |= assert_same(cuda, "spectral_right", **given, tiles=tiles, iterate=iterate)
        for cap in (0.3, 1e9):
            assert_same(
                cuda,
                "spectral_scale",
                **given,
                sigma=len(table),
                normal=np.zeros(len(params)),
                normal_target=np.zeros(len(params)),
                parts=parts,
                iterate=iterate,
                cap=cap,
            )


def sigmas(count):
    """Below, at and above a cap of 2, and none at all."""
    return np.resize([3.7, 2.0, 0.3, 7.7, np.nan, np.inf, -5], count)


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
@pytest.mark.parametrize("parts", PARTS)
def test_spectral_dot(cuda, shapes, parts):
    params, grad, table, _ = spectral_arguments(shapes)
    grad[len(grad) // 3] = np.nan
    count = len(shapes)
    assert_same(
        cuda,
        "spectral_dot",
        grad=grad,
        params=params,
        table=table,
        dots=count * parts,
        count=count,
        parts=parts,
    )


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
@pytest.mark.parametrize("parts", PARTS)
def test_spectral_grad(cuda, shapes, parts):
    grad, _, table, vectors = spectral_arguments(shapes)
    count = len(shapes)
    assert_same(
        cuda,
        "spectral_grad",
        grad=grad,
        table=table,
        vectors=vectors,
        sigma=sigmas(len(table)),
        dots=np.random.default_rng(parts).normal(size=(count, parts)),
        count=count,
        parts=parts,
        cap=2.0,
    )
