"""The learner's kernels against their twins: bit for bit."""

import numpy as np
import pytest
from pair_runs import assert_same, run_on

from onegraph.kernels.common.layout import (
    ADAM_GROUPS,
    COUNTERS,
    DIAGNOSTICS,
    SCHEDULE_PARAMS,
    SCHEDULES,
    Counter,
    Schedule,
    ScheduleKind,
    ScheduleParam,
)
from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.advance_counters import COLLECT, LEARN, initial_schedule
from onegraph.kernels.learner.maintain import blocks_for
from onegraph.kernels.learner.publish import RECORD, RecordField, read_record

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


#: None, one, within and beyond a quad and a tile of eight, and several tiles.
SUMMED_COLUMNS = [0, 1, 3, 4, 7, 8, 12, 33, 100]


@pytest.mark.parametrize("cols", SUMMED_COLUMNS)
@pytest.mark.parametrize("rows", [0, 1, 31, 33, 128, 129, 1000, 2049, 4099])
def test_column_sum(cuda, rows, cols):
    x = spiced(np.random.default_rng(rows + cols), (rows, cols), 0.0005)
    assert_same(cuda, "column_sum", x=x, out=cols, rows=rows, cols=cols)


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
def test_column_sum_gives_the_same_bits_wherever_x_stands(cuda, offset):
    rows, cols = 777, 20
    x = np.random.default_rng(0).normal(size=(rows, cols)).astype(np.float32)
    whole = cuda.upload(np.concatenate([np.full(offset, np.nan, np.float32), x.ravel()]))
    out = cuda.upload(np.full(cols, np.nan, np.float32))
    cuda.run("column_sum", x=whole.view(offset, (rows, cols)), out=out, rows=rows, cols=cols)
    want = run_on(HostDevice(), "column_sum", x=x, out=cols, rows=rows, cols=cols)["out"]
    np.testing.assert_array_equal(out.to_host_checkpoint(), want)


def test_column_sum_keeps_a_nan_in_its_column(cuda):
    x = np.ones((50, 40), np.float32)
    x[13, 7] = np.nan
    out = run_on(cuda, "column_sum", x=x, out=40, rows=50, cols=40)["out"]
    assert np.flatnonzero(np.isnan(out)).tolist() == [7]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("actions", [1, 2, 5])
@pytest.mark.parametrize(
    ("dueling", "double_q", "mse"), [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)]
)
def test_dqn_loss(cuda, n, actions, dueling, double_q, mse):
    rng = np.random.default_rng(n * 100 + actions * 8 + dueling * 4 + double_q * 2 + mse)
    width = actions + dueling
    heads = [spiced(rng, (n, width)) for _ in range(3)]
    heads[2][rng.random((n, width)) < 0.2] = 1.0  # ties
    action = rng.integers(actions, size=n)
    action[rng.random(n) < 0.05] = -3
    action[rng.random(n) < 0.05] = actions
    assert_same(
        cuda,
        "dqn_loss",
        head_tm1=heads[0],
        head_select=heads[1],
        head_target=heads[2],
        action=action,
        reward=spiced(rng, n),
        discount=np.where(rng.random(n) < 0.2, 0, 0.97),
        weight=rng.uniform(size=n),
        td=n,
        loss=n,
        q_taken=n,
        grad_head=np.zeros((n, width)),
        n=n,
        actions=actions,
        dueling=dueling,
        double_q=double_q,
        mse=mse,
        delta=0.7,
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("share", [0, 0.01])
def test_batch_stats(cuda, n, share):
    rng = np.random.default_rng(n)
    loss, td, q = (spiced(rng, n, share) for _ in range(3))
    assert_same(cuda, "batch_stats", loss=loss, td=td, q_taken=q, stats=4, n=n)


@pytest.mark.parametrize("n", [*SIZES, 100_003])
@pytest.mark.parametrize("parts", [1, 3, 64])
def test_grad_norm_partial(cuda, n, parts):
    grad = np.random.default_rng(n).normal(size=n)
    assert_same(cuda, "grad_norm_partial", grad=grad, partial=parts, n=n, parts=parts)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_grad_norm_partial_sees_one_bad_element(cuda, bad):
    grad = np.ones(5003)
    grad[4321] = bad
    out = assert_same(cuda, "grad_norm_partial", grad=grad, partial=3, n=5003, parts=3)
    assert np.isfinite(out["partial"]).sum() == 2


@pytest.mark.parametrize("parts", [1, 64, 255, 256, 1000])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 1e9])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf])
def test_clip_factor(cuda, parts, max_norm, bad):
    partial = np.random.default_rng(parts).uniform(size=parts)
    if bad is not None:
        partial[parts // 2] = bad
    out = assert_same(
        cuda, "clip_factor", partial=partial, clip=2, skip=1, parts=parts, max_norm=max_norm
    )
    assert out["skip"].tolist() == [0 if bad is None else 1]


@pytest.mark.parametrize("n", [*SIZES, 100_003])
@pytest.mark.parametrize("parts", [1, 3, 64])
@pytest.mark.parametrize("bad", [None, np.nan])
def test_grad_norm(cuda, n, parts, bad):
    grad = np.random.default_rng(n).normal(size=n)
    if bad is not None and n:
        grad[n // 2] = bad
    sizes = {"partial": parts, "clip": 2, "skip": 1, "n": n, "parts": parts}
    assert_same(cuda, "grad_norm", grad=grad, ticket=[0], max_norm=0.5, **sizes)


def test_grad_norm_leaves_its_ticket_for_the_next_launch(cuda):
    grad = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    expected = run_on(
        cuda, "grad_norm", 1, grad=grad, partial=64, clip=2, skip=1, ticket=[0], n=50_000, parts=64,
        max_norm=0.5,
    )["clip"]  # fmt: skip
    held = {
        "grad": cuda.upload(grad),
        "partial": cuda.allocate((64,), "f64"),
        "clip": cuda.allocate((2,), "f32"),
        "skip": cuda.allocate((1,), "i32"),
        "ticket": cuda.upload(np.zeros(1, np.uint32)),
    }
    launch = cuda.prepare("grad_norm", {**held, "n": 50_000, "parts": 64, "max_norm": 0.5})
    for _ in range(200):
        for name in ("partial", "clip"):
            cuda.memset(held[name])
        cuda.launch(launch)
        np.testing.assert_array_equal(held["clip"].to_host_checkpoint(), expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("size", [0, 1, 257, 5003])
@pytest.mark.parametrize(
    ("tau", "every", "skip"), [(0.005, 0, 0), (1.0, 0, 0), (0.3, 5, 0), (0.3, 0, 1)]
)
def test_maintain(cuda, n, size, tau, every, skip):
    rng = np.random.default_rng(n + size)
    given = publish_arguments(9)
    del given["stats"]
    given["counters"][Counter.ADAM_TRUNK] = 10
    given["schedule"][Schedule.TAU] = tau
    assert_same(
        cuda,
        "maintain",
        **(given | {"skip": [skip]}),
        target=rng.normal(size=size),
        param=rng.normal(size=size),
        loss=spiced(rng, n),
        td=spiced(rng, n),
        q_taken=spiced(rng, n),
        record=np.zeros(RECORD),
        history=np.full((5, RECORD), -1.0),
        size=size,
        every=every,
        n=n,
        ring=5,
        blocks=blocks_for(size),
    )


def some_schedule(tau=0.005):
    schedule = np.random.default_rng(1).uniform(0.01, 1, SCHEDULES)
    schedule[Schedule.TAU] = tau
    return schedule


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("groups", ["one", "several", "some elements in none"])
@pytest.mark.parametrize("skip", [0, 1])
def test_adam_step(cuda, n, groups, skip):
    rng = np.random.default_rng(n)
    ends = {
        "one": [n] * ADAM_GROUPS,
        "several": [0, n // 3, n // 3, n // 2, n // 2 + 1, n, n],
        "some elements in none": [n // 5, n // 4, n // 4, n // 4, n // 4, n // 4, n // 2],
    }[groups]
    assert_same(
        cuda,
        "adam_step",
        param=rng.normal(size=n),
        m=rng.normal(size=n),
        v=rng.uniform(size=n),
        grad=spiced(rng, n),
        clip=[3, 0.37],
        schedule=some_schedule(),
        skip=[skip],
        ends=ends,
        decay=rng.uniform(size=ADAM_GROUPS) * (np.arange(ADAM_GROUPS) % 3),
        n=n,
        beta1=0.9,
        beta2=0.999,
        eps=1e-5,
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("tau", "every", "adam_t", "skip"),
    [(0.005, 0, 1, 0), (1.0, 0, 1, 0), (0.3, 5, 10, 0), (0.3, 5, 11, 0), (0.3, 0, 1, 1)],
)
def test_target_update(cuda, n, tau, every, adam_t, skip):
    rng = np.random.default_rng(n)
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.ADAM_TRUNK] = adam_t
    assert_same(
        cuda,
        "target_update",
        target=rng.normal(size=n),
        param=rng.normal(size=n),
        schedule=some_schedule(tau),
        counters=counters,
        skip=[skip],
        n=n,
        every=every,
    )


@pytest.mark.parametrize("program", [LEARN, COLLECT, 2])
@pytest.mark.parametrize("kind", list(ScheduleKind))
def test_advance_counters_through_a_run(cuda, program, kind):
    params = np.zeros(SCHEDULE_PARAMS)
    for first, start, end in [
        (ScheduleParam.TAU, 0.01, 0.002),
        (ScheduleParam.BETA, 0.4, 1.0),
        (ScheduleParam.EPSILON, 1.0, 0.05),
        (ScheduleParam.LEARNING_RATE, 1e-3, 1e-5),
    ]:
        params[first : first + 4] = kind, start, end, 37
    params[ScheduleParam.WARM_UP_STEPS] = 11
    params[ScheduleParam.ADAM_BETA1], params[ScheduleParam.ADAM_BETA2] = 0.9, 0.999
    counters, schedule = np.zeros(COUNTERS, np.int64), initial_schedule(params)
    rng = np.random.default_rng(kind)
    for _ in range(45):
        out = assert_same(
            cuda,
            "advance_counters",
            counters=counters,
            schedule=schedule,
            params=params,
            skip=[int(rng.random() < 0.2) if counters[Counter.ADAM_TRUNK] else 0],
            program=program,
            lanes=5,
            slots=7,
        )
        counters, schedule = out["counters"], out["schedule"]


@pytest.mark.parametrize("t", [1, 2, 1000, 123_456, 10**9])
def test_bias_corrections_at_any_age(cuda, t):
    params = np.zeros(SCHEDULE_PARAMS)
    params[ScheduleParam.ADAM_BETA1], params[ScheduleParam.ADAM_BETA2] = 0.9, 0.9999
    counters = np.zeros(COUNTERS, np.int64)
    counters[: Counter.RNG] = t + np.arange(Counter.RNG)
    assert_same(
        cuda,
        "advance_counters",
        counters=counters,
        schedule=np.zeros(SCHEDULES),
        params=params,
        skip=[0],
        program=LEARN,
        lanes=1,
        slots=1,
    )


def publish_arguments(step):
    rng = np.random.default_rng(step)
    counters = np.arange(COUNTERS) + 100
    counters[Counter.RNG] = step
    return {
        "stats": rng.normal(size=4),
        "clip": rng.normal(size=2),
        "counters": counters,
        "schedule": rng.normal(size=SCHEDULES),
        "diagnostics": np.arange(DIAGNOSTICS) + 7,
        "skip": [step % 2],
    }


@pytest.mark.parametrize("step", [0, 1, 4, 5, 6, 1_000_003])
@pytest.mark.parametrize("ring", [0, 1, 5])
def test_publish(cuda, step, ring):
    history = np.full((max(ring, 1), RECORD), -1.0)
    assert_same(
        cuda,
        "publish",
        **publish_arguments(step),
        record=np.zeros(RECORD),
        history=history,
        ring=ring,
    )


def test_a_record_in_pinned_memory_reads_whole_at_any_moment(cuda):
    record = cuda.allocate((RECORD,), "f64", "record", pinned=True)
    view = record.host
    view[:] = 0
    history = cuda.upload(np.zeros((4, RECORD)), "history")
    launches = []
    for step in range(1, 65):
        given = {
            name: cuda.upload(np.asarray(values, dtype), name)
            for (name, values), dtype in zip(
                publish_arguments(step).items(), ["f8", "f4", "i8", "f8", "i8", "i4"], strict=True
            )
        }
        launches.append(
            cuda.prepare("publish", {**given, "record": record, "history": history, "ring": 4})
        )
    expected = {step: publish_arguments(step)["stats"][0] for step in range(1, 65)}
    for launch in launches:
        cuda.launch(launch)
        if (got := read_record(view)) is not None:  # whichever step it is, it is whole
            assert got[RecordField.LOSS] == expected[got.step]
    cuda.synchronize()
    last = read_record(view)
    assert last is not None
    assert last.step == 64
    assert last[RecordField.LOSS] == expected[64]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("actions", "stride"), [(1, 1), (3, 4), (18, 18)])
@pytest.mark.parametrize(
    ("epsilon", "greedy"), [(0.0, 0), (0.3, 0), (1.0, 0), (1.0, 1), (np.nan, 0)]
)
def test_act(cuda, n, actions, stride, epsilon, greedy):
    rng = np.random.default_rng(n + actions)
    head = spiced(rng, (n, stride), share=0.2)
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.COLLECT] = 2**32 + 77
    schedule = np.zeros(SCHEDULES)
    schedule[Schedule.EPSILON] = epsilon
    assert_same(
        cuda,
        "act",
        head=head,
        action=n,
        counters=counters,
        schedule=schedule,
        n=n,
        actions=actions,
        stride=stride,
        seed=0xFEDCBA9876543210,
        greedy=greedy,
    )


@pytest.mark.parametrize("order", [(9, 0, 0, 0), (5, 0, 0, 0), (9, 1, 0, 0), (9, 0, 2, 0)])
@pytest.mark.parametrize("skip", [0, 1])
def test_loop_control(cuda, order, skip):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.COLLECT] = 5, 11
    counters[Counter.SKIPPED_IN_A_ROW] = 1
    assert_same(
        cuda,
        "loop_control",
        counters=counters,
        skip=[skip],
        order=np.array(order),
        report=np.full(3, -1, np.int64),
        go=1,
        condition=0,
    )
