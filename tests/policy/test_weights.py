"""Named weights: PyTorch's names and orientation, and a network made of them by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from policy.served import tolerance
from safetensors import safe_open
from trainer.setups import chain, fill, full, make, market, short, steps

from onegraph.kernels.device import HostDevice
from onegraph.trainer.policy.policy import policy_of
from onegraph.trainer.policy.weights import FORMAT, named_weights, write_weights


def trained(config):
    return steps(fill(make(HostDevice(), config)), 4)


def test_the_names_of_the_dqn_preset(tmp_path):
    policy = policy_of(trained(chain()))
    shapes = write_weights(policy, tmp_path / "w.safetensors")
    assert shapes == {
        "trunk.0.weight": (16, 5),
        "trunk.0.bias": (16,),
        "head.advantage.weight": (2, 16),
        "head.advantage.bias": (2,),
        "head.value.weight": (1, 16),
        "head.value.bias": (1,),
    }
    with safe_open(tmp_path / "w.safetensors", framework="numpy") as file:
        about = json.loads(file.metadata()[FORMAT])
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {name: tuple(shape) for name, shape in about["shapes"].items()} == shapes
    assert about["hidden"] == [16]
    assert about["dueling"] is True
    assert about["facts"]["action_names"] == ["0", "1"]
    assert {(name, v.shape, v.dtype.name) for name, v in found.items()} == {
        (name, shape, "float32") for name, shape in shapes.items()
    }


def test_a_network_by_hand_has_the_trainers_values():
    trainer = trained(market(network__hidden=[16, 12]))
    w = named_weights(trainer.network, policy_of(trainer).params)
    x = np.random.default_rng(0).normal(size=(7, trainer.network.observation_width)).astype("f4")
    h = x
    for i in range(2):
        h = np.maximum(h @ w[f"trunk.{i}.weight"].T + w[f"trunk.{i}.bias"], 0)
    a = h @ w["head.advantage.weight"].T + w["head.advantage.bias"]
    v = h @ w["head.value.weight"].T + w["head.value.bias"]
    q = trainer.q_values(x)
    np.testing.assert_allclose(v + a - a.mean(1, keepdims=True), q, rtol=0, atol=tolerance(q))


def test_every_parameter_of_the_full_preset_has_a_name():
    network = trained(full(network__noisy=True)).network
    params = np.arange(network.size, dtype=np.float32)
    named = named_weights(network, params)
    outside = {"hidden", "block", "attn"}
    assert not {name for name in named if name.split(".")[0] in outside}
    for part in (
        "gate.logit",
        "attention.in_proj_weight",
        "attention.out_proj.bias",
        "trunk.1.weight",
        "blocks.0.norm.weight",
        "blocks.0.linear2.bias",
        "head.advantage.weight_sigma",
        "iqn.embed.weight",
        "iqn.head.value.bias_sigma",
        "iql.hidden.weight",
        "denoise.state.bias",
    ):
        assert part in named, part
    # Each number stands once: none is lost but padding's, none is there twice.
    values = np.concatenate([v.ravel() for v in named.values()])
    assert len(set(values.tolist())) == len(values)
    padded = sum(t.size for t in network.layout) - len(values)
    own = network.inputs - network.observation_width
    assert padded == own * (1 + 2 * network.aux.iql_hidden)  # the gate, two value networks


@pytest.mark.parametrize("atoms", [5])
def test_a_categorical_head_is_split_by_atoms(atoms):
    trainer = trained(short(network__head="c51", network__c51__atoms=atoms))
    w = named_weights(trainer.network, trainer.parameters())
    assert w["c51.head.advantage.weight"].shape == (2 * atoms, 16)
    assert w["c51.head.value.weight"].shape == (atoms, 16)


def test_normalised_matrices_leave_as_evaluation_reads_them():
    trainer = trained(short(network__spectral_cap=0.3))
    w = named_weights(trainer.network, policy_of(trainer).params)["trunk.0.weight"]
    raw = named_weights(trainer.network, trainer.parameters())["trunk.0.weight"]
    assert np.linalg.norm(raw, 2) > 0.35
    assert np.linalg.norm(w, 2) == pytest.approx(0.3, rel=0.05)
    np.testing.assert_allclose(w / w[0, 0], raw / raw[0, 0], rtol=1e-4)


def test_equal_policies_give_equal_files(tmp_path):
    for name in ("a", "b"):
        write_weights(policy_of(trained(short())), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
