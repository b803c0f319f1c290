"""Kernels around the optimiser against their twins, bit for bit."""

import numpy as np
import pytest
from pair_runs import assert_same

from onegraph.kernels.common.layout import ADAM_GROUPS
from onegraph.kernels.learner.budget import Component

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
