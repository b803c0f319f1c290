"""Any network that a config can describe acts as a graph as it does here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy.served import Served, tolerance, unequal_actions

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.trainer.blocks.iqn import READY
from onegraph.trainer.config import load_config
from onegraph.trainer.network import QNetwork
from onegraph.trainer.policy.facts import PolicyFacts
from onegraph.trainer.policy.policy import policy_from_state

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

NETWORKS = st.fixed_dictionaries(
    {
        "network.hidden": st.lists(st.integers(1, 12), min_size=1, max_size=3),
        "network.gate": st.booleans(),
        "network.attention_groups": st.sampled_from([0, 1, 2, 4]),
        "network.attention_heads": st.sampled_from([1, 2]),
        "network.residual_blocks": st.integers(0, 2),
        "network.spectral_cap": st.sampled_from([0.0, 0.7]),
        "network.noisy": st.booleans(),
        "network.dueling": st.booleans(),
        "network.head": st.sampled_from(["dqn", "iqn", "c51"]),
        "network.iqn.quantiles": st.integers(1, 5),
        "network.iqn.readiness": st.booleans(),
        "network.c51.atoms": st.integers(2, 9),
        "seed": st.integers(0, 2**31),
    }
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    fields=NETWORKS,
    width=st.integers(1, 19),
    actions=st.integers(2, 5),
    weight=st.sampled_from([0.0, 0.25, 1.0]),
    collects=st.integers(0, 2**40),
)
def test_any_network(fields, width, actions, weight, collects):
    config = load_config("chain", fields)
    facts = PolicyFacts(observation_width=width, action_names=tuple(map(str, range(actions))))
    network = QNetwork.of(config, facts)
    rng = np.random.default_rng(fields["seed"])
    theta = network.initial(config.seed)
    theta += rng.normal(0, 0.3, theta.shape).astype("f4") * (theta != 0)  # padding stays 0
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.COLLECT] = collects
    state = {b.name: b.initial() for b in network.state()} | {"counters": counters}
    if READY in state:
        state[READY] = np.array([0.1, weight if config.network.iqn.readiness else 1.0])
    policy = policy_from_state(config, facts, {**state, "theta": theta}, 7, "here")
    x = rng.normal(size=(3, width)).astype("f4")
    q = np.concatenate([network.q_values(theta, row[None], state) for row in x])
    found = Served(policy).run(observation=x)
    np.testing.assert_allclose(found["q"], q, rtol=0, atol=tolerance(q))
    unequal_actions(found, q, tolerance(q))
