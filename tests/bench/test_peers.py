"""The peers take our steps; a peer with a planted error does not."""

from __future__ import annotations

from dataclasses import replace

import gate
import numpy as np
import pytest
from peers import FULL_PEERS, PEERS, PeerUnavailableError, open_peer, problem
from peers.full.problem import draws_of
from peers.problem import PeerSpec
from ungraphed import without_graphs

from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.budget import Component
from onegraph.trainer.bench import BenchSubject, named_size

# A peer's library may warn of itself (Inductor does, of float32 without TF32): no error of ours.
pytestmark = pytest.mark.filterwarnings("default")

by_peer = pytest.mark.parametrize("name", PEERS)
by_full_peer = pytest.mark.parametrize("name", FULL_PEERS)


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


@pytest.fixture(scope="module")
def full_reference():
    """Our 100 steps of the full preset on the host."""
    return gate.ours(gate.full_subject(), HostDevice(), gate.STEPS)


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


@by_full_peer
def test_a_peer_takes_our_hundred_full_steps(name, full_reference):
    check(name, gate.full_subject(), HostDevice(), gate.STEPS, reference=full_reference)


@pytest.mark.gpu
@by_full_peer
def test_a_peer_takes_our_hundred_full_steps_on_the_gpu(name, cuda):
    check(name, gate.full_subject(), cuda, gate.STEPS)


@pytest.mark.gpu
@by_full_peer
def test_a_peer_takes_our_first_steps_at_the_full_size(name, cuda):
    check(name, BenchSubject(named_size("FULL"), gate.FULL_AT_SIZE), cuda, gate.STEPS_AT_SIZE)


def test_every_part_of_the_full_gate_has_its_say():
    """What binds in some steps and what not: an error in it would show."""
    from injected import InjectedRun

    subject, scales, sigmas, removed, weights, depths = gate.full_subject(), [], [], [], [], []
    run = InjectedRun(subject, HostDevice())
    for indices in gate.rows(subject, gate.STEPS):
        run.step(indices)
        scales.append(run.read("budget_scales"))
        sigmas.append(run.read("spectral_sigma"))
        removed.append(run.read("vaccine_removed")[0])
        weights.append(run.read("iqn_ready")[1])
        depths.append(run.read("depth_scale"))
    run.close()
    over = (np.array(scales) < 1.0).mean(axis=0)
    assert (over > 0.05).all(), over
    assert (over < 1.0).any(), over
    capped = np.array(sigmas) > subject.config.network.spectral_cap
    assert capped.any()
    assert not capped.all()
    assert 0.1 < (np.array(removed) < 0.0).mean() < 0.9
    assert ((np.array(weights) > 0.1) & (np.array(weights) < 0.9)).any()
    assert 0.1 < (np.array(depths) == 0.0).mean() < 0.9


@pytest.mark.parametrize(
    "planted",
    [
        {"kappa": 0.51},
        {"huber_delta": 0.99},
        {"expectile_high": 0.71},
        {"expectile_low": 0.31},
        {"spectral_cap": 1.01},
        {"weight_decay": 0.11},
        {"gate_l1": 0.051},
        {"denoise_weight": 0.26},
        {"denoise_sigma": 0.11},
        {"modulate_k": 1.01},
        {"modulate_eps": 0.11},
        {"modulate_high": 1.5},
        {"modulate_low": 0.6},
        {"ready_high": 3.1},
        {"ready_low": 0.6},
        {"ready_decay": 0.91},
        {"max_grad_norm": 0.51},
        {"tau": 0.0051},
        {"beta": 0.41},
        *({f"shares {c.name}": c} for c in Component),
    ],
    ids=lambda planted: "-".join(planted),
)
def test_a_slightly_wrong_constant_of_the_full_step_is_caught(planted, full_reference):
    subject = gate.full_subject()
    spec, initial = gate.start(subject, HostDevice())
    (name, value), *_ = planted.items()
    if name.startswith("shares"):
        shares = list(spec.shares)
        shares[value] *= 0.95
        planted = {"shares": tuple(shares)}
    try:
        found = gate.agreement(
            "torch_eager", replace(spec, **planted), initial, subject, full_reference
        )
    except PeerUnavailableError as error:
        pytest.skip(f"torch_eager: {error}")
    assert found.worst > 2 * gate.BOUND


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


def test_a_full_peer_draws_a_batch_and_a_vaccine_batch():
    """Each from strata of its own: of leaves 10, 5 and 2 a batch of 170 has 100, 50 and 20."""
    subject = gate.full_subject()
    spec, initial = problem(subject, "host")
    leaves = np.zeros_like(initial.leaves)
    leaves[[0, 40, 1023]] = 10, 5, 2
    spec, initial = replace(spec, batch=170), replace(initial, leaves=leaves)
    try:
        peer = open_peer("torch_eager", spec, initial)
    except PeerUnavailableError as error:
        pytest.skip(f"torch_eager: {error}")
    given = peer.draw()
    for batch in given.index.numpy().reshape(2, -1):
        drawn = np.bincount(batch, minlength=1024)
        assert np.abs(drawn[[0, 40, 1023]] - [100, 50, 20]).max() <= 1
    assert not np.array_equal(given.online[0].numpy(), given.online[1].numpy())
    before = peer.parameters()["head.weight"]
    peer.run(2)
    assert np.isfinite(peer.loss())
    assert not np.array_equal(before, peer.parameters()["head.weight"])


def _draw(peer, spec: PeerSpec):
    if hasattr(peer, "replay"):
        return peer.replay.draw().numpy()
    from peers import jax_scan

    return np.asarray(jax_scan.draw(spec, peer.carry, peer.carry.key))


def test_a_step_that_no_peer_takes_is_refused_by_field():
    subject = BenchSubject(named_size("S"), {"learn.loss": "mse"})
    with pytest.raises(PeerUnavailableError, match=r"learn\.loss = huber, not mse"):
        problem(subject, "host")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learn.vaccine": False}, r"learn\.vaccine = True, not False"),
        ({"network.head": "c51"}, r"network\.head = iqn, not c51"),
        ({"states": 60, "network.attention_groups": 8}, r"states % 8 = 0, not 4"),
    ],
)
def test_a_part_of_the_full_step_alone_is_refused_by_field(overrides, message):
    size = {"replay.capacity": 1024, "learn.batch_size": 32}
    subject = BenchSubject(named_size("FULL"), {**size, **overrides})
    with pytest.raises(PeerUnavailableError, match=message):
        problem(subject, "host")


@pytest.mark.parametrize("name", ["torch_graph", "torch_compile_graph"])
def test_a_graphs_warm_up_leaves_no_trace(name, reference, monkeypatch):
    pytest.importorskip("torch", exc_type=ImportError)
    from peers import torch_compile_graph, torch_graph

    without_graphs(monkeypatch, torch_graph, torch_compile_graph)
    check(name, gate.gate_subject(), HostDevice(), gate.STEPS, reference=reference)


def test_the_full_graphs_warm_up_leaves_no_trace(full_reference, monkeypatch):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from peers.full import torch_compile_graph

    without_graphs(monkeypatch, torch_compile_graph)
    with torch.no_grad():
        check(
            "torch_compile_graph",
            gate.full_subject(),
            HostDevice(),
            gate.STEPS,
            reference=full_reference,
        )


def test_what_inductor_fails_on_is_compiled_with_other_options(monkeypatch):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from peers.full import torch_compile_graph as graphed

    without_graphs(monkeypatch, graphed)
    asked = []

    def compiles(function, *, options, **_):
        asked.append(options)
        return function if options else _fails

    def _fails():
        raise AssertionError("of Inductor's own")

    monkeypatch.setattr(torch, "compile", compiles)
    spec, initial = problem(gate.full_subject(), "host")
    peer = graphed.make(spec, initial)
    with torch.no_grad():
        peer.run(2)
    assert asked == list(graphed.OPTIONS)
    assert peer.loss() > 0.0


def test_the_compiled_full_step_is_ours_before_it_is_compiled():
    """Its trace alone, run without Inductor: the graph it makes on a GPU is checked there."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from peers.full.torch_compile_graph import FullCompiled

    subject = gate.full_subject()
    spec, initial = gate.start(subject, HostDevice())
    reference = gate.ours(subject, HostDevice(), 5)
    peer = FullCompiled(spec, initial)
    compiled = torch.compile(peer.learn, backend="eager", fullgraph=True, dynamic=False)
    with torch.no_grad():
        for step, indices in enumerate(gate.rows(subject, 5)):
            compiled(peer.upload(draws_of(subject, step, indices)))
    found = gate._flat(peer.parameters())
    assert gate._relative(found, reference.parameters) <= gate.BOUND
    assert peer.loss() == pytest.approx(reference.losses[-1], rel=gate.BOUND)


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
