"""adam_step and target_update: published arithmetic, exactness at the ends, and the skip gate."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import ADAM_GROUPS, COUNTERS, SCHEDULES, Counter, Schedule

SCALARS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


def schedule(rate=0.1, tau=0.0, ages=None):
    """A schedule with the corrections of the given groups at their ages, the others NaN."""
    values = np.full(SCHEDULES, np.nan)
    values[Schedule.LEARNING_RATE], values[Schedule.TAU] = rate, tau
    for group, t in (ages or {0: 1}).items():
        values[Schedule.BIAS + 2 * group] = 1 - float(np.float32(0.9)) ** t
        values[Schedule.BIAS + 2 * group + 1] = 1 - float(np.float32(0.999)) ** t
    return values


def adam(
    param, grad, *, m=None, v=None, clip=1.0, skip=0, plan=None, ends=None, decay=None, **scalars
):
    n = len(param)
    return run_host(
        "adam_step",
        param=param,
        m=np.zeros(n) if m is None else m,
        v=np.zeros(n) if v is None else v,
        grad=grad,
        clip=[0, clip],
        schedule=schedule() if plan is None else plan,
        skip=[skip],
        ends=[n] * ADAM_GROUPS if ends is None else ends,
        decay=[0.0] * ADAM_GROUPS if decay is None else decay,
        n=n,
        **{**SCALARS, **scalars},
    )


def test_the_first_step_is_the_learning_rate_against_the_sign():
    out = adam([1, 1, 1], [0.5, -2, 0])
    np.testing.assert_allclose(out["param"], [0.9, 1.1, 1], rtol=1e-6)
    np.testing.assert_allclose(out["m"], [0.05, -0.2, 0], rtol=1e-6)
    np.testing.assert_allclose(out["v"], [0.00025, 0.004, 0], rtol=2e-5)  # beta2 is a float32


def test_eps_stands_beside_the_root():
    assert adam([1], [1], eps=1.0)["param"][0] == pytest.approx(1 - 0.1 * 1 / (1 + 1))


def test_the_clip_factor_scales_the_gradient():
    np.testing.assert_array_equal(adam([1], [4], clip=0.25)["m"], adam([1], [1])["m"])


def test_decay_is_decoupled_from_the_moments():
    out = adam([2], [0], decay=[0.5] + [np.nan] * 6)
    assert out["param"][0] == pytest.approx(2 - 0.1 * 0.5 * 2)
    assert out["m"][0] == out["v"][0] == 0


def test_each_group_reads_its_own_corrections_and_decay():
    ends = [2, 2, 2, 3, 3, 3, 4]  # groups 0, 3 and 6 have parameters; the fifth element has none
    plan = schedule(ages={0: 1, 3: 2, 6: 1})
    decay = [0.0, np.nan, np.nan, 0.0, np.nan, np.nan, 0.5]
    out = adam([1] * 5, [2] * 5, plan=plan, ends=ends, decay=decay)
    # At age 2 with no gradient before: (0.1 g / 0.19) / sqrt(0.001 g^2 / 0.001999).
    second = 1 - 0.1 * (0.1 / 0.19) / np.sqrt(0.001 / 0.001999)
    np.testing.assert_allclose(out["param"], [0.9, 0.9, second, 0.9 - 0.05, 1], rtol=2e-5)
    np.testing.assert_allclose(out["m"], [0.2] * 4 + [0], rtol=1e-6)


def test_groups_that_end_past_the_parameters_are_cut_off():
    out = adam([1, 1], [1, 1], ends=[1, 9, 9, 9, 9, 9, 9], plan=schedule(ages={0: 1, 1: 1}))
    np.testing.assert_allclose(out["param"], [0.9, 0.9], rtol=1e-6)


def test_against_pytorch_with_two_groups_of_their_own_decay():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    rng = np.random.default_rng(1)
    start = rng.normal(size=12).astype(np.float32)
    groups = [torch.tensor(start[:5].copy()), torch.tensor(start[5:].copy())]
    theirs = torch.optim.AdamW(
        [
            {"params": [torch.nn.Parameter(groups[0])], "weight_decay": 0.3},
            {"params": [torch.nn.Parameter(groups[1])], "weight_decay": 0.01},
        ],
        lr=1e-2,
        betas=(0.9, 0.999),
        eps=1e-5,
    )
    ours = {"param": start, "m": np.zeros(12), "v": np.zeros(12)}
    ends, decay = [5, 5, 5, 5, 5, 12, 12], [0.3, 0, 0, 0, 0, 0.01, 0]
    for t in range(1, 31):
        grad = rng.normal(size=12).astype(np.float32)
        for group, part in zip(theirs.param_groups, (grad[:5], grad[5:]), strict=True):
            group["params"][0].grad = torch.tensor(part)
        theirs.step()
        ours = adam(
            ours["param"],
            grad,
            m=ours["m"],
            v=ours["v"],
            plan=schedule(1e-2, ages={0: t, 5: t}),
            ends=ends,
            decay=decay,
            eps=1e-5,
        )
    found = np.concatenate([g["params"][0].detach().numpy() for g in theirs.param_groups])
    np.testing.assert_allclose(ours["param"], found, rtol=0, atol=2e-6)


@pytest.mark.parametrize("grad", [1.0, np.nan])
def test_a_skipped_step_changes_nothing(grad):
    out = adam([1], [grad], m=[2], v=[3], skip=1)
    assert (out["param"][0], out["m"][0], out["v"][0]) == (1, 2, 3)


def test_fifty_steps_against_the_algorithm_in_float64():
    rng = np.random.default_rng(0)
    param, m, v = rng.normal(size=20), np.zeros(20), np.zeros(20)
    ours = {"param": param.astype(np.float32), "m": m, "v": v}
    for t in range(1, 51):
        grad = rng.normal(size=20).astype(np.float32)
        ours = adam(ours["param"], grad, m=ours["m"], v=ours["v"], plan=schedule(1e-3, ages={0: t}))
        m = 0.9 * m + 0.1 * grad
        v = 0.999 * v + 0.001 * grad.astype(np.float64) ** 2
        param = param - 1e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(ours["param"], param, rtol=0, atol=1e-6)


def track(target, param, *, tau=0.0, every=0, adam_t=1, skip=0):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.ADAM_TRUNK] = adam_t
    return run_host(
        "target_update",
        target=target,
        param=param,
        schedule=schedule(tau=tau),
        counters=counters,
        skip=[skip],
        n=len(param),
        every=every,
    )["target"]


def test_soft_update():
    np.testing.assert_allclose(track([0, 10], [10, 0], tau=0.25), [2.5, 7.5])


def test_tau_one_copies_exactly_where_the_formula_would_round():
    target, param = np.float32(1e8), np.float32(0.1)
    assert target + (param - target) != param
    assert track([target], [param], tau=1.0)[0] == param


@pytest.mark.parametrize(
    ("every", "adam_t", "copied"), [(50, 50, True), (50, 100, True), (50, 51, False), (1, 7, True)]
)
def test_periodic_hard_update(every, adam_t, copied):
    got = track([1], [2], tau=0.5, every=every, adam_t=adam_t)
    assert got.tolist() == [2 if copied else 1]


@pytest.mark.parametrize("every", [0, 1])
def test_a_skipped_step_leaves_the_target(every):
    assert track([1], [2], tau=1.0, every=every, skip=1).tolist() == [1]
