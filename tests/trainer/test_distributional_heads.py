"""The quantile and the categorical head as blocks: a program of their ops on the host device."""

import numpy as np
import pytest

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.c51_loss import categorical_terms
from onegraph.kernels.learner.iqn_cosines import TauUse, cosine_features, quantile_levels
from onegraph.kernels.learner.iqn_loss import iqn_terms
from onegraph.stages.program import Buffer, Phase, Ref, StepProgram, merge_buffers
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.blocks.c51 import C51Head
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.blocks.head_loss import HeadBatch
from onegraph.trainer.blocks.iqn import Group, IqnHead, Readiness
from onegraph.trainer.blocks.layout import Layout

ROWS, HIDDEN, ACTIONS = 6, 8, 3
BATCH = HeadBatch(Ref("action"), Ref("reward"), Ref("discount"), Ref("weight"))


class Bench:
    """Given arrays, and a program of what the passes have emitted."""

    def __init__(self, head, **given):
        rng = np.random.default_rng(4)
        self.layout = Layout(head.tensors())
        counters = np.zeros(COUNTERS, np.int64)
        counters[Counter.RNG], counters[Counter.COLLECT] = 8, 5
        self.given = {
            "theta": self.layout.initial(1),
            "theta_target": self.layout.initial(2),
            "grad": np.full(self.layout.size, np.nan, np.float32),
            "features": np.maximum(rng.normal(size=(ROWS, HIDDEN)), 0).astype(np.float32),
            "next_features": np.maximum(rng.normal(size=(ROWS, HIDDEN)), 0).astype(np.float32),
            "action": rng.integers(ACTIONS, size=ROWS).astype(np.int32),
            "reward": rng.normal(size=ROWS).astype(np.float32),
            "discount": np.array([0.9, 0, 0.9, 0.9, 0, 0.9], np.float32),
            "weight": rng.uniform(0.2, 1, ROWS).astype(np.float32),
            "counters": counters,
            "skip": np.zeros(1, np.int32),
            **given,
        }

    def emit(self, prefix, params="theta"):
        return Emit(self.layout, prefix, ROWS, params=params)

    def run(self, *passes):
        codes = {"float32": "f32", "int32": "i32", "int64": "i64"}
        buffers = [
            Buffer(name, values.shape, codes[str(values.dtype)], initial=lambda v=values: v)
            for name, values in self.given.items()
        ]
        ops = tuple(op for emit in passes for op in emit.ops)
        program = StepProgram(
            "p",
            "learn",
            (Phase("all", ops),),
            merge_buffers(buffers, *(emit.buffers for emit in passes)),
        ).pruned()
        self.space = Workspace(HostDevice())
        self.runner = Runner(program, self.space)
        self.runner.step()

    def read(self, at, *shape):
        name = at if isinstance(at, str) else at.buffer
        return self.space.read(name).reshape(shape or -1)

    def tensor(self, name, flat="theta"):
        return self.layout[name].values(self.given[flat]).astype(np.float64)


def gradients_hold(bench, names, objective, features, grad_features, tolerance=2e-4):
    """The written gradients against central differences of a float64 model of the objective.

    `objective` takes a mapping from names to float64 arrays, the features among them.
    """
    values = {name: bench.tensor(name) for name in names}
    values["features"] = bench.given[features].astype(np.float64)
    grad = bench.read("grad")
    written = {name: bench.layout[name].values(grad) for name in names}
    written["features"] = bench.read(grad_features, ROWS, HIDDEN)
    step = 1e-6
    for name, array in values.items():
        numeric = np.empty_like(array)
        for index in np.ndindex(array.shape):
            value = array[index]
            array[index] = value + step
            above = objective(values)
            array[index] = value - step
            below = objective(values)
            array[index] = value
            numeric[index] = (above - below) / (2 * step)
        scale = np.abs(numeric).max()
        assert scale > 0, name
        np.testing.assert_allclose(
            written[name], numeric, rtol=tolerance, atol=tolerance * scale, err_msg=name
        )


def iqn(**given):
    return IqnHead(
        **{
            "hidden": HIDDEN,
            "actions": ACTIONS,
            "dueling": True,
            "quantiles": 5,
            "target_quantiles": 7,
            "cosines": 16,
            "kappa": 0.3,
            "seed": 9,
            **given,
        }
    )


def quantiles_of(head, values, tau):
    """Float64 model of the head's matrix [B, Q, A + d]."""
    phi = np.maximum(
        cosine_features(tau, head.cosines) @ values["iqn.embed.weight"] + values["iqn.embed.bias"],
        0,
    )
    z = values["features"][:, None] * phi.reshape(ROWS, -1, HIDDEN)
    return z @ values["iqn.head.weight"] + values["iqn.head.bias"]


@pytest.mark.parametrize("dueling", [False, True])
def test_a_step_of_the_quantile_head(dueling):
    head = iqn(dueling=dueling)
    bench = Bench(head)
    online, select = bench.emit("online."), bench.emit("select.")
    target = bench.emit("target.", "theta_target")
    features, successor = Ref("features"), Ref("next_features")
    quantiles = head.forward(online, features, TauUse.ONLINE)
    select_values = head.values(
        select, head.forward(select, successor, TauUse.SELECT), TauUse.SELECT
    )
    target_quantiles = head.forward(target, successor, TauUse.TARGET)
    last = bench.emit("online.")
    loss = head.loss(last, quantiles, target_quantiles, select_values, BATCH)
    grad_features = head.backward(last, features, loss.grad_head)
    bench.run(online, select, target, last)

    names = [tensor.name for tensor in head.tensors()]
    tau = quantile_levels(9, ROWS * 5, 7, TauUse.ONLINE)
    assert bench.read("online.iqn.tau").tolist() == tau.tolist()
    model = {name: bench.tensor(name) for name in names}
    model["features"] = bench.given["features"]
    np.testing.assert_allclose(
        bench.read(quantiles, ROWS, 5, -1), quantiles_of(head, model, tau), atol=1e-5
    )
    tau_t = quantile_levels(9, ROWS * 7, 7, TauUse.TARGET)
    model = {name: bench.tensor(name, "theta_target") for name in names}
    model["features"] = bench.given["next_features"]
    fixed = quantiles_of(head, model, tau_t)
    tau_select = quantile_levels(9, ROWS * 5, 7, TauUse.SELECT)
    model = {name: bench.tensor(name) for name in names}
    model["features"] = bench.given["next_features"]
    chosen = quantiles_of(head, model, tau_select).mean(1)
    np.testing.assert_allclose(bench.read(select_values, ROWS, -1), chosen, atol=1e-5)

    given = bench.given

    def objective(values):
        terms = iqn_terms(
            quantiles_of(head, values, tau),
            tau.reshape(ROWS, 5).astype(np.float64),
            fixed,
            chosen,
            given["action"],
            given["reward"].astype(np.float64),
            given["discount"].astype(np.float64),
            given["weight"].astype(np.float64),
            actions=ACTIONS,
            dueling=int(dueling),
            kappa=0.3,
        )
        return terms.loss.mean()

    gradients_hold(bench, names, objective, "features", grad_features)
    assert all(tensor.group == Group.IQN for tensor in head.tensors())


def test_the_features_gradient_can_be_added_to_another():
    head = iqn()
    alone, beside = Bench(head), Bench(head, other=np.ones((ROWS, HIDDEN), np.float32))
    results = []
    for bench, add_to in ((alone, None), (beside, Ref("other"))):
        emit = bench.emit("online.")
        quantiles = head.forward(emit, Ref("features"), TauUse.ONLINE)
        results.append(head.backward(emit, Ref("features"), quantiles, add_to=add_to))
        bench.run(emit)
    assert results[1] == Ref("other")
    expected = np.float32(1) + alone.read(results[0])
    assert beside.read("other").tolist() == expected.tolist()


def test_readiness_hands_over_from_the_plain_head():
    head = iqn(readiness=Readiness(decay=0.5, low=1.0, high=3.0))
    plain = np.arange(ROWS * head.stride, dtype=np.float32).reshape(ROWS, -1)
    bench = Bench(head, plain=plain, losses=np.full(ROWS, 2, np.float32))
    emit = bench.emit("act.")
    quantiles = head.forward(emit, Ref("features"), TauUse.ACT)
    with pytest.raises(ValueError, match="needs the plain head"):
        head.values(emit, quantiles, TauUse.ACT)
    values = head.values(emit, quantiles, TauUse.ACT, Ref("plain"))
    head.update_readiness(emit, Ref("losses"))
    bench.run(emit)
    assert bench.read(values).tolist() == plain.ravel().tolist()  # no loss seen yet
    assert bench.read("iqn_ready").tolist() == [2, 0.5]
    bench.runner.step()
    mean = bench.read(quantiles, ROWS, 5, -1).mean(1)
    np.testing.assert_allclose(
        bench.read(values, ROWS, -1), (plain + mean) / 2, rtol=1e-6, atol=1e-6
    )


def test_without_a_readiness_rule_the_quantiles_decide():
    head = iqn()
    (ready,) = head.state()
    assert ready.persistent
    np.testing.assert_array_equal(ready.initial(), [np.nan, 1])
    bench = Bench(head)
    emit = bench.emit("act.")
    head.update_readiness(emit, Ref("losses"))
    assert emit.ops == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quantiles": 0}, "quantiles is 0"),
        ({"target_quantiles": -1}, "target_quantiles is -1"),
        ({"kappa": 0.0}, "kappa 0.0 must be positive"),
    ],
)
def test_quantile_heads_that_can_not_be(change, message):
    with pytest.raises(ValueError, match=message):
        iqn(**change)


@pytest.mark.parametrize(
    ("decay", "low", "high", "message"),
    [(1.0, 0, 1, "decay 1.0 is not in"), (0.9, 1, 1, "low 1 is not below high 1")],
)
def test_readiness_rules_that_can_not_be(decay, low, high, message):
    with pytest.raises(ValueError, match=message):
        Readiness(decay, low, high)


@pytest.mark.parametrize("dueling", [False, True])
def test_a_step_of_the_categorical_head(dueling):
    head = C51Head(HIDDEN, ACTIONS, dueling, atoms=11, v_min=-3.0, v_max=3.0)
    bench = Bench(head)
    online, select = bench.emit("online."), bench.emit("select.")
    target = bench.emit("target.", "theta_target")
    features, successor = Ref("features"), Ref("next_features")
    logits = head.forward(online, features)
    select_values = head.values(select, head.forward(select, successor))
    target_logits = head.forward(target, successor)
    last = bench.emit("online.")
    loss = head.loss(last, logits, target_logits, select_values, BATCH)
    grad_features = head.backward(last, features, loss.grad_head)
    bench.run(online, select, target, last)

    def logits_of(values, features):
        out = features @ values["c51.head.weight"] + values["c51.head.bias"]
        return out.reshape(ROWS, -1, 11)

    given, names = bench.given, [tensor.name for tensor in head.tensors()]
    fixed = logits_of(
        {name: bench.tensor(name, "theta_target") for name in names}, given["next_features"]
    )
    chosen = bench.read(select_values, ROWS, ACTIONS)

    def objective(values):
        terms = categorical_terms(
            logits_of(values, values["features"]),
            fixed,
            chosen,
            given["action"],
            given["reward"],
            given["discount"],
            given["weight"],
            actions=ACTIONS,
            dueling=int(dueling),
            v_min=-3.0,
            v_max=3.0,
        )
        return terms.loss.mean()

    gradients_hold(bench, names, objective, "features", grad_features)
    mean = {name: bench.tensor(name) for name in names}
    assert bench.read(loss.loss).mean() == pytest.approx(
        objective({**mean, "features": given["features"].astype(np.float64)}), rel=1e-5
    )


def test_the_categorical_gradient_stops_at_the_features_relu():
    head = C51Head(HIDDEN, ACTIONS, dueling=False, atoms=11, v_min=-3.0, v_max=3.0)
    bench = Bench(head)
    emit = bench.emit("online.")
    logits = head.forward(emit, Ref("features"))
    out = head.backward(emit, Ref("features"), logits, relu_of=Ref("features"))
    bench.run(emit)
    stopped = bench.read(out, ROWS, HIDDEN) == 0
    assert stopped.tolist() == (bench.given["features"] == 0).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"atoms": 1}, "atoms is 1; a head has 2 to 256"),
        ({"atoms": 257}, "atoms is 257"),
        ({"v_min": 3.0}, "v_min 3.0 is not below v_max 3.0"),
        ({"actions": 0}, "actions is 0"),
    ],
)
def test_categorical_heads_that_can_not_be(change, message):
    with pytest.raises(ValueError, match=message):
        C51Head(
            **{
                "hidden": HIDDEN,
                "actions": ACTIONS,
                "dueling": True,
                "atoms": 51,
                "v_min": -3.0,
                "v_max": 3.0,
                **change,
            }
        )
