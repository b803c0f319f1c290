"""The quantile and the categorical heads' kernels against their twins: bit for bit."""

import numpy as np
import pytest
from pair_runs import assert_same

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.learner.advance_counters import COLLECT, LEARN
from onegraph.kernels.learner.iqn_cosines import TauUse

pytestmark = pytest.mark.gpu

#: None, one, odd, a block of warps, just more, and many.
ROWS = [0, 1, 3, 4, 5, 257]

#: Levels of a row: one, odd, a warp, just more, two warps, and more.
LEVELS = [(1, 1), (3, 5), (32, 32), (33, 64), (64, 33), (70, 100)]


def spiced(rng, shape, share=0.02, scale=1.0):
    """Normal numbers of that scale with some that are NaN, infinite, zero, huge and tiny."""
    values = (scale * rng.normal(size=shape)).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 3e38, 1e-42], np.float32)
    at = rng.random(shape) < share
    values[at] = rng.choice(special, size=int(at.sum()))
    return values


def transitions(rng, n, actions, share=0.02):
    """Action, reward, discount and weight of `n` rows, some of them corrupt or terminal."""
    action = rng.integers(actions, size=n)
    action[rng.random(n) < 0.05] = -3
    action[rng.random(n) < 0.05] = actions
    return {
        "action": action,
        "reward": spiced(rng, n, share),
        "discount": np.where(rng.random(n) < 0.2, 0, 0.97),
        "weight": rng.uniform(size=n),
    }


@pytest.mark.parametrize("n", [0, 1, 5, 8, 257, 3001])
@pytest.mark.parametrize("frequencies", [1, 7, 33, 64])
@pytest.mark.parametrize(
    ("program", "use"), [(LEARN, TauUse.ONLINE), (LEARN, TauUse.TARGET), (COLLECT, 3)]
)
def test_iqn_cosines(cuda, n, frequencies, program, use):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.COLLECT] = 2**32 + 5, 2**33 + 77
    assert_same(
        cuda,
        "iqn_cosines",
        tau=n,
        cosines=n * frequencies,
        counters=counters,
        n=n,
        frequencies=frequencies,
        program=program,
        use=int(use),
        seed=0xFEDCBA9876543210,
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("quantiles", "hidden"), [(1, 1), (3, 7), (16, 64), (37, 129)])
def test_iqn_mix(cuda, rows, quantiles, hidden):
    rng = np.random.default_rng(rows + quantiles)
    assert_same(
        cuda,
        "iqn_mix",
        features=spiced(rng, (rows, hidden)),
        phi=spiced(rng, (rows * quantiles, hidden)),
        z=rows * quantiles * hidden,
        rows=rows,
        quantiles=quantiles,
        hidden=hidden,
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("quantiles", "hidden"), [(1, 1), (3, 7), (16, 64), (37, 129)])
@pytest.mark.parametrize(("add", "depth"), [(0, None), (1, None), (0, 0.0), (1, 1.25)])
def test_iqn_mix_grad(cuda, rows, quantiles, hidden, add, depth):
    rng = np.random.default_rng(rows + quantiles)
    size = rows * quantiles, hidden
    assert_same(
        cuda,
        "iqn_mix_grad",
        features=spiced(rng, (rows, hidden)),
        phi=spiced(rng, size),
        grad_z=spiced(rng, size),
        grad_phi=rows * quantiles * hidden,
        grad_features=rng.normal(size=(rows, hidden)) if add else np.full((rows, hidden), np.nan),
        depth=[np.nan if depth is None else depth],
        grad_branch=rows * hidden,
        with_branch=int(depth is not None),
        rows=rows,
        quantiles=quantiles,
        hidden=hidden,
        add=add,
    )


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize(("quantiles", "target_quantiles"), LEVELS)
@pytest.mark.parametrize(("actions", "dueling"), [(1, 0), (4, 0), (1, 1), (3, 1), (40, 1)])
@pytest.mark.parametrize("share", [0, 0.005])
def test_iqn_loss(cuda, n, quantiles, target_quantiles, actions, dueling, share):
    rng = np.random.default_rng(n + quantiles * 7 + actions)
    width = actions + dueling
    assert_same(
        cuda,
        "iqn_loss",
        head_tm1=spiced(rng, (n * quantiles, width), share),
        tau=rng.uniform(size=n * quantiles),
        head_target=spiced(rng, (n * target_quantiles, width), share),
        head_select=np.round(spiced(rng, (n, width), share)),  # ties
        **transitions(rng, n, actions, share),
        td=n,
        loss=n,
        q_taken=n,
        grad_head=n * quantiles * width,
        n=n,
        quantiles=quantiles,
        target_quantiles=target_quantiles,
        actions=actions,
        dueling=dueling,
        kappa=0.7,
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("quantiles", "stride"), [(1, 1), (5, 3), (33, 19)])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_iqn_values(cuda, rows, quantiles, stride, weight):
    rng = np.random.default_rng(rows + quantiles)
    assert_same(
        cuda,
        "iqn_values",
        head=spiced(rng, (rows * quantiles, stride)),
        head_plain=spiced(rng, (rows, stride)),
        ready=[0, weight],
        values=rows * stride,
        rows=rows,
        quantiles=quantiles,
        stride=stride,
    )


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 5003])
@pytest.mark.parametrize("ready", [(np.nan, 0), (0.7, 0.4)])
@pytest.mark.parametrize(("skip", "bad"), [(0, None), (1, None), (0, np.nan), (0, np.inf)])
def test_iqn_readiness(cuda, n, ready, skip, bad):
    loss = np.random.default_rng(n).uniform(size=n)
    if bad is not None and n:
        loss[n // 2] = bad
    out = assert_same(
        cuda,
        "iqn_readiness",
        loss=loss,
        skip=[skip],
        ready=ready,
        n=n,
        decay=0.99,
        low=0.2,
        high=0.9,
    )
    moved = not np.array_equal(out["ready"], ready, equal_nan=True)
    assert moved == (n > 0 and not skip and bad is None)


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("atoms", [2, 31, 32, 51, 65, 256])
@pytest.mark.parametrize(("actions", "dueling"), [(1, 0), (4, 0), (1, 1), (3, 1)])
@pytest.mark.parametrize("share", [0, 0.002])
def test_c51_loss(cuda, n, atoms, actions, dueling, share):
    rng = np.random.default_rng(n + atoms * 7 + actions)
    size = n, (actions + dueling) * atoms
    assert_same(
        cuda,
        "c51_loss",
        head_tm1=spiced(rng, size, share),
        head_target=spiced(rng, size, share, scale=10),
        head_select=np.round(spiced(rng, (n, actions), share)),
        **transitions(rng, n, actions, share),
        td=n,
        loss=n,
        q_taken=n,
        grad_head=size[0] * size[1],
        n=n,
        actions=actions,
        dueling=dueling,
        atoms=atoms,
        v_min=-2.1,
        v_max=3.3,
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("atoms", [2, 31, 32, 51, 65, 256])
@pytest.mark.parametrize(("actions", "dueling"), [(1, 0), (5, 0), (1, 1), (18, 1)])
def test_c51_values(cuda, rows, atoms, actions, dueling):
    rng = np.random.default_rng(rows + atoms)
    assert_same(
        cuda,
        "c51_values",
        head=spiced(rng, (rows, (actions + dueling) * atoms), 0.002, scale=5),
        values=rows * actions,
        rows=rows,
        actions=actions,
        dueling=dueling,
        atoms=atoms,
        v_min=-10.0,
        v_max=10.0,
    )
