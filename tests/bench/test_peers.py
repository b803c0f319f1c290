"""The peers take our steps; a peer with a planted error does not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import gate
import numpy as np
import pytest
from peers import PEERS, PeerUnavailableError, open_peer, problem
from peers.problem import PeerSpec

from onegraph.kernels.device import HostDevice
from onegraph.trainer.bench import BenchSubject, named_size

# A peer's library may warn of itself (Inductor does, of float32 without TF32): no error of ours.
pytestmark = pytest.mark.filterwarnings("default")

by_peer = pytest.mark.parametrize("name", PEERS)


def check(name, subject, device, steps, *, reference=None):
    """Skip by name where the peer is absent; else hold it to the bound."""
    spec, initial = gate.start(subject, device)
    reference = reference or gate.ours(subject, device, steps)
    try:
        found = gate.agreement(name, spec, initial, subject, reference)
    except PeerUnavailableError as error:
        pytest.skip(f"{name}: {error}")
    assert found.worst <= gate.BOUND, found


@pytest.fixture(scope="module")
def reference():
    """Our 100 steps on the host."""
    return gate.ours(gate.gate_subject(), HostDevice(), gate.STEPS)


def test_the_gate_clips_some_steps_and_lets_others_be(reference):
    assert 10 <= reference.clipped <= 90


@by_peer
def test_a_peer_takes_our_hundred_steps(name, reference):
    check(name, gate.gate_subject(), HostDevice(), gate.STEPS, reference=reference)


@by_peer
def test_a_peer_takes_our_first_steps_at_the_small_size(name):
    check(name, BenchSubject(named_size("S"), gate.AT_SIZE), HostDevice(), gate.STEPS_AT_SIZE)


@pytest.mark.gpu
@by_peer
def test_a_peer_takes_our_hundred_steps_on_the_gpu(name, cuda):
    check(name, gate.gate_subject(), cuda, gate.STEPS)


@pytest.mark.gpu
@by_peer
def test_a_peer_takes_our_first_steps_at_the_medium_size(name, cuda):
    check(name, BenchSubject(named_size("M"), gate.AT_SIZE), cuda, gate.STEPS_AT_SIZE)


@pytest.mark.parametrize("name", ["torch_eager", "jax_scan"])
@pytest.mark.parametrize(
    "planted",
    [
        {"beta": 0.41},
        {"tau": 0.0051},
        {"alpha": 0.61},
        {"lr": 3.01e-4},
        {"adam_beta2": 0.998},
        {"huber_delta": 0.9},
        {"max_grad_norm": 0.11},
    ],
    ids=lambda planted: "-".join(planted),
)
def test_a_slightly_wrong_constant_is_caught(name, planted, reference):
    subject = gate.gate_subject()
    spec, initial = gate.start(subject, HostDevice())
    try:
        found = gate.agreement(name, replace(spec, **planted), initial, subject, reference)
    except PeerUnavailableError as error:
        pytest.skip(f"{name}: {error}")
    assert found.worst > 2 * gate.BOUND


@pytest.mark.parametrize("name", ["torch_eager", "jax_scan"])
def test_a_peer_draws_in_proportion_to_its_priorities(name):
    """Rows 0..2 of leaves 10, 5 and 2, and rows of zero, over many stratified draws."""
    subject = gate.gate_subject()
    spec, initial = problem(subject, "host")
    leaves = np.zeros_like(initial.leaves)
    leaves[[0, 40, 1023]] = 10, 5, 2
    spec, initial = replace(spec, batch=1700), replace(initial, leaves=leaves)
    try:
        peer = open_peer(name, spec, initial)
    except PeerUnavailableError as error:
        pytest.skip(f"{name}: {error}")
    drawn = np.bincount(_draw(peer, spec), minlength=subject.shapes.capacity)
    assert np.flatnonzero(drawn).tolist() == [0, 40, 1023]
    assert np.abs(drawn[[0, 40, 1023]] - [1000, 500, 200]).max() <= 1  # a stratum at each edge


def _draw(peer, spec: PeerSpec):
    if hasattr(peer, "replay"):
        return peer.replay.draw().numpy()
    from peers import jax_scan

    return np.asarray(jax_scan.draw(spec, peer.carry, peer.carry.key))


def test_a_step_that_no_peer_takes_is_refused_by_field():
    subject = BenchSubject(named_size("S"), {"learn.loss": "mse"})
    with pytest.raises(PeerUnavailableError, match=r"learn\.loss = huber, not mse"):
        problem(subject, "host")
    with pytest.raises(PeerUnavailableError, match="no peer of the replay alone"):
        problem(BenchSubject(named_size("REPLAY"), {"replay.capacity": 2**17}), "host")


@pytest.mark.parametrize("name", ["torch_graph", "torch_compile_graph"])
def test_a_graphs_warm_up_leaves_no_trace(name, reference, monkeypatch):
    """Warmed up as for a capture and then run op by op, where there is no graph to replay."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from peers import torch_compile_graph, torch_graph

    def warmed_up(step, state):
        with torch_graph.undone(state):
            for _ in range(torch_graph.WARM_UP):
                step()
        return SimpleNamespace(replay=step)

    for module in (torch_graph, torch_compile_graph):
        monkeypatch.setattr(module, "require_cuda", lambda spec: None)
        monkeypatch.setattr(module, "capture", warmed_up)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    check(name, gate.gate_subject(), HostDevice(), gate.STEPS, reference=reference)


def test_the_compiled_step_is_ours_before_it_is_compiled():
    """Its trace alone, run without Inductor: the graph it makes on a GPU is checked there."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from peers.torch_compile_graph import CompiledStep

    subject = gate.gate_subject()
    spec, initial = gate.start(subject, HostDevice())
    reference = gate.ours(subject, HostDevice(), 5)
    step = CompiledStep(spec, initial, backend="eager")
    for indices in gate.rows(subject, 5):
        step.on_rows(torch.from_numpy(indices.astype(np.int64)))
    found = gate._flat(step.parameters())
    assert gate._relative(found, reference.parameters) <= gate.BOUND
    assert step.loss() == pytest.approx(reference.losses[-1], rel=gate.BOUND)
