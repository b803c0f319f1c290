"""The ONNX graph acts as the trainer's evaluation does."""

from __future__ import annotations

import json

import numpy as np
import pytest
from policy.served import Served, tolerance, unequal_actions
from trainer.setups import (
    chain,
    fill,
    full,
    full_market,
    make,
    market,
    market_setup,
    short,
    steps,
)

from onegraph.kernels.device import HostDevice
from onegraph.trainer.blocks.iqn import READY
from onegraph.trainer.config import Config
from onegraph.trainer.evaluation import WindowEvaluator
from onegraph.trainer.market import compute_features
from onegraph.trainer.policy.onnx_graph import IR_VERSION, OPSET, build_model
from onegraph.trainer.policy.policy import policy_of
from onegraph.trainer.trainer import Trainer

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

STEPS = 12

HEADS = {
    "dqn": {},
    "dqn, not dueling": {"network__dueling": False},
    "two layers": {"network__hidden": [16, 12]},
    "gate": {"network__gate": True},
    "attention": {"network__attention_groups": 4, "network__attention_heads": 2},
    "residual": {"network__residual_blocks": 2, "network__drop_path": 0.5},
    "spectral": {"network__spectral_cap": 0.5},
    "noisy": {"network__noisy": True},
    "c51": {"network__head": "c51", "network__c51__atoms": 11},
    "c51, not dueling": {"network__head": "c51", "network__dueling": False},
    "iqn": {"network__head": "iqn", "network__iqn__quantiles": 4, "network__iqn__readiness": False},
    "iqn, not dueling": {
        "network__head": "iqn",
        "network__dueling": False,
        "network__iqn__readiness": False,
    },
}


def trained(config: Config, count: int = STEPS) -> Trainer:
    return steps(fill(make(HostDevice(), config)), count)


def observed(rows: int, rng: np.random.Generator) -> np.ndarray:
    """Position features as a lane has them."""
    held = rng.integers(0, 30, rows)
    position = rng.integers(-1, 2, rows)
    return np.stack([position, rng.normal(0, 0.02, rows), held / (held + 10.0)], 1).astype("f4")


def by_row(trainer: Trainer, observations: np.ndarray) -> np.ndarray:
    """Action values as an evaluation of one lane has them: each row with the same levels."""
    if trainer.network.iqn is None:
        return trainer.q_values(observations)
    return np.concatenate([trainer.q_values(row[None]) for row in observations])


def compare_on_the_market(trainer: Trainer, rows: int) -> int:
    setup = market_setup(trainer.config)
    raw = compute_features(setup.bars).values[setup.windows.test][:rows]
    scaled = setup.environment.features[setup.windows.test][:rows]
    own = observed(len(raw), np.random.default_rng(0))
    served = Served(policy_of(trainer)).run(features=raw, position_features=own)
    q = by_row(trainer, np.concatenate([scaled, own], axis=1))
    np.testing.assert_allclose(served["q"], q, rtol=0, atol=tolerance(q))
    np.testing.assert_array_equal(
        served["position"], np.array(trainer.config.env.market.positions)[served["action"]]
    )
    assert served["q"].std(axis=0).min() > 0  # nothing that is constant
    return unequal_actions(served, q)


@pytest.mark.parametrize("changes", HEADS.values(), ids=HEADS)
def test_every_part_on_the_test_window(changes):
    trainer = trained(market(**changes))
    assert compare_on_the_market(trainer, 32 if trainer.network.iqn else 400) == 0


@pytest.mark.parametrize("weight", [0.0, 0.375, 1.0])
def test_the_full_preset_at_each_readiness(weight):
    trainer = trained(full_market())
    trainer.workspace.write(READY, np.array([0.05, weight]))
    assert compare_on_the_market(trainer, 32) == 0


@pytest.mark.parametrize(
    "config",
    [chain(), full(), full(network__head="c51", network__noisy=True)],
    ids=["chain", "full", "noisy c51"],
)
def test_plain_observations(config):
    trainer = trained(config)
    states = np.eye(5, dtype=np.float32)
    served = Served(policy_of(trainer)).run(observation=states)
    q = by_row(trainer, states)
    np.testing.assert_allclose(served["q"], q, rtol=0, atol=tolerance(q))
    assert unequal_actions(served, q) == 0
    assert set(served) == {"action", "q"}


@pytest.mark.parametrize("config", [market(), full_market()], ids=["dqn", "full"])
def test_a_walk_through_the_test_window_is_the_evaluators(config):
    """The observations are the evaluation lane's own, bar by bar."""
    trainer = trained(config)
    setup = market_setup(config)
    evaluator = WindowEvaluator(
        trainer.programs, trainer.workspace, setup, setup.windows.test, "test"
    )
    raw = compute_features(setup.bars).values
    served = Served(policy_of(trainer))
    width = raw.shape[1]
    evaluator._reset.step()
    observations, taken = [], []
    for _ in range(setup.windows.test.start, setup.windows.test.stop - 1):
        observations.append(trainer.workspace.read("test_obs")[0])
        evaluator._step.step()
        taken.append(trainer.workspace.read("test_action")[0])
    own = np.array(observations)[:, width : width + 3]
    bars = slice(setup.windows.test.start, setup.windows.test.stop - 1)
    found = served.run(features=raw[bars], position_features=own)
    np.testing.assert_array_equal(found["action"], taken)
    assert len(taken) > 300


def test_a_batch_of_any_size_gives_the_same_rows():
    trainer = trained(market())
    setup = market_setup(trainer.config)
    raw = compute_features(setup.bars).values[setup.windows.test][:9]
    own = observed(9, np.random.default_rng(1))
    served = Served(policy_of(trainer))
    whole = served.run(features=raw, position_features=own)
    for i in range(9):
        one = served.run(features=raw[i : i + 1], position_features=own[i : i + 1])
        np.testing.assert_allclose(one["q"][0], whole["q"][i], rtol=1e-5, atol=1e-7)
        assert one["action"].shape == (1,)


def test_scaling_is_the_trainers_to_the_bit_at_the_edges():
    """Clipped, constant and huge features, by a network that passes one feature on."""
    trainer = trained(market())
    facts = policy_of(trainer).facts
    std = list(facts.scaling.std)
    std[1] = 0.0
    scaling = facts.scaling.model_copy(update={"std": tuple(std)})
    policy = policy_of(trainer)
    object.__setattr__(policy, "facts", facts.model_copy(update={"scaling": scaling}))
    mean = np.array(scaling.mean)
    raw = np.stack([mean, mean + 1e9, mean - 1e9])
    own = np.zeros((3, 3), np.float32)
    x = np.zeros((3, len(mean) + 3), np.float32)
    x[1, : len(mean)], x[2, : len(mean)] = 10.0, -10.0
    x[:, 1] = 0.0
    served = Served(policy).run(features=raw, position_features=own)
    q = trainer.q_values(x)
    np.testing.assert_allclose(served["q"], q, rtol=0, atol=tolerance(q))


def test_a_row_with_a_nan_has_no_values_and_the_trainers_action():
    trainer = trained(market())
    width = len(policy_of(trainer).facts.scaling.names)
    raw, own = np.zeros((3, width)), np.zeros((3, 3), np.float32)
    raw[0, 2] = np.nan
    own[2, 1] = np.nan
    found = Served(policy_of(trainer)).run(features=raw, position_features=own)
    assert np.isnan(found["q"]).all(axis=1).tolist() == [True, False, True]
    assert found["action"][[0, 2]].tolist() == [0, 0]


def test_a_discrete_observation_is_one_hot_inside():
    trainer = trained(chain())
    policy = policy_of(trainer)
    plain = Served(policy).run(observation=np.eye(5, dtype=np.float32))
    object.__setattr__(policy, "facts", policy.facts.model_copy(update={"one_hot": True}))
    served = Served(policy)
    found = served.run(observation=np.arange(5))
    np.testing.assert_array_equal(found["q"], plain["q"])
    np.testing.assert_array_equal(found["action"], plain["action"])
    outside = served.run(observation=np.array([-1, 5, 2]))
    assert np.isnan(outside["q"]).all(axis=1).tolist() == [True, True, False]


def test_the_model_says_where_it_comes_from():
    trainer = trained(market())
    policy = policy_of(trainer)
    model = build_model(policy)
    about = {prop.key: prop.value for prop in model.metadata_props}
    assert about["config_digest"] == policy.config_digest
    assert about["learn_steps"] == str(STEPS)
    assert json.loads(about["positions"]) == [-1.0, 0.0, 1.0]
    assert json.loads(about["action_names"]) == ["position -1", "position 0", "position 1"]
    names = json.loads(about["feature_names"])
    assert tuple(names) == compute_features(market_setup(trainer.config).bars).names
    assert len(json.loads(about["position_feature_names"])) == 3
    assert about["head"] == "dqn"
    assert about["onegraph_version"]
    assert (model.opset_import[0].version, model.ir_version) == (OPSET, IR_VERSION)
    assert len(model.opset_import) == 1


def test_equal_policies_give_equal_files():
    one, two = (
        build_model(policy_of(trained(short()))).SerializeToString(deterministic=True)
        for _ in range(2)
    )
    assert one == two


def test_weights_stand_under_their_names():
    policy = policy_of(trained(short()))
    names = {tensor.name for tensor in build_model(policy).graph.initializer}
    assert {"trunk.0.weight", "trunk.0.bias", "head.advantage.weight", "head.value.bias"} <= names
