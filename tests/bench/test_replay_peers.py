"""The peers of the replay alone draw, gather, weigh and write back as they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from peers import REPLAY_PEERS, PeerUnavailableError, labels, open_replay_peer, problem
from ungraphed import without_graphs

from onegraph.trainer.bench import BenchSubject, named_size

# A peer's library may warn of itself: no error of ours.
pytestmark = pytest.mark.filterwarnings("default")

by_peer = pytest.mark.parametrize("name", REPLAY_PEERS)

#: flashbax draws no more rows than there are.
CAPACITY = BATCH = 2048

#: Groups of rows that draws are counted in: rows apart by it have the same leaf.
GROUPS = 64

#: Chi-square's 0.9999 quantile at 63 degrees of freedom.
CHI_SQUARE = 112.0


def start(leaves, *, kind="host", batch=BATCH, **constants):
    """The problem over `leaves` [N], at another batch and other constants."""
    size = {"replay.capacity": leaves.size, "learn.batch_size": 32}
    spec, initial = problem(BenchSubject(named_size("REPLAY"), size), kind)
    errors = np.random.default_rng(5).standard_normal(batch, np.float32)
    spec = replace(spec, batch=batch, **constants)
    return spec, replace(initial, leaves=leaves.astype(np.float32), errors=errors)


def opened(name, spec, initial, monkeypatch):
    """The peer, its graphs replaced on the host; skipped by name where it is absent."""
    if name.startswith("torch_") and spec.device == "cpu":
        pytest.importorskip("torch", exc_type=ImportError)
        from peers.replay import torch_replay

        without_graphs(monkeypatch, torch_replay)
    np.random.seed(3)  # noqa: NPY002  torchrl's CPU trees draw from it
    try:
        return open_replay_peer(name, spec, initial)
    except PeerUnavailableError as error:
        pytest.skip(f"{name}: {error}")


def spread_leaves():
    """Leaves of many sizes, none of them zero."""
    return np.resize(np.random.default_rng(2).uniform(0.3, 3.0, GROUPS), CAPACITY)


def chi_square(index, leaves):
    """Of the rows drawn, by group, against the groups' shares of the leaves."""
    assert index.min() >= 0
    assert index.max() < leaves.size
    mass = np.asarray(leaves, np.float64).reshape(-1, GROUPS).sum(0)
    expected = index.size * mass / mass.sum()
    drawn = np.bincount(index % GROUPS, minlength=GROUPS)
    return float(((drawn - expected) ** 2 / expected).sum())


def new_leaves(errors, spec):
    return (np.abs(errors, dtype=np.float64) + spec.eps) ** spec.alpha


def rows_of(initial, index):
    """What a batch of `index` is to hold."""
    names = ("states", "next_states", "actions", "returns", "discounts")
    return {name: getattr(initial, name)[index] for name in names}


def check_draws(peer, spec, initial):
    batch = peer.draw()
    assert chi_square(batch.index, initial.leaves) < CHI_SQUARE
    assert not np.array_equal(batch.index, peer.draw().index)


def check_run(peer, spec, initial):
    """What a step drew has the leaves of the given errors, and the next draw goes by them."""
    peer.run(peer.quantum)
    peer.wait()
    batch, leaves = peer.last(), peer.priorities()
    given = new_leaves(initial.errors, spec)
    assert np.unique(batch.index).size < batch.index.size  # some stand twice
    for row in np.unique(batch.index):
        assert np.isclose(given[batch.index == row], leaves[row], rtol=1e-5).any()
    assert chi_square(peer.draw().index, leaves) < CHI_SQUARE
    if batch.states is None:
        assert name_of(peer) == "TorchrlSampler"
        return
    for name, values in rows_of(initial, batch.index).items():
        np.testing.assert_array_equal(getattr(batch, name), values, err_msg=name)


def name_of(peer):
    return type(peer).__name__


@by_peer
def test_a_peer_draws_in_proportion_to_its_priorities(name, monkeypatch):
    spec, initial = start(spread_leaves())
    check_draws(opened(name, spec, initial, monkeypatch), spec, initial)


@by_peer
def test_a_peer_steps(name, monkeypatch):
    spec, initial = start(spread_leaves())
    check_run(opened(name, spec, initial, monkeypatch), spec, initial)


def test_uniform_draws_fail_the_bound():
    drawn = np.arange(BATCH) % CAPACITY
    assert chi_square(drawn, spread_leaves()) > 3 * CHI_SQUARE


@by_peer
def test_a_peers_weights_are_right(name, monkeypatch):
    """Leaves 1, 4 and 16, beta 1/2: weights 1, 1/2 and 1/4, the smallest leaf's being the most."""
    leaves = np.resize([1.0, 4.0, 16.0], CAPACITY)
    spec, initial = start(leaves, beta=0.5)
    batch = opened(name, spec, initial, monkeypatch).draw()
    expected = np.resize([1.0, 0.5, 0.25], CAPACITY)[batch.index]
    np.testing.assert_allclose(batch.weights, expected, rtol=1e-5)


@by_peer
def test_what_is_written_back_is_drawn_by(name, monkeypatch):
    """Row 9 stands twice: it has one of its two leaves. Row 5 outweighs all others by far."""
    spec, initial = start(np.ones(CAPACITY), alpha=0.5, eps=0.25)
    peer = opened(name, spec, initial, monkeypatch)
    errors = np.array([-3.75, 2.0, 0.0, 1e14], np.float32)
    peer.write_back(np.array([9, 3, 9, 5]), errors)
    leaves = peer.priorities()
    assert leaves[9] == pytest.approx(2.0) or leaves[9] == pytest.approx(0.5)
    assert leaves[[3, 5]] == pytest.approx([1.5, 1e7])
    others = np.setdiff1d(np.arange(CAPACITY), [3, 5, 9])
    np.testing.assert_allclose(leaves[others], 1.0, rtol=1e-6)
    assert (peer.draw().index == 5).mean() > 0.99


@by_peer
def test_a_peer_draws_a_stratum_or_independently(name, monkeypatch):
    """Leaves 10, 5 and 2 of 17: by strata 1,000, 500 and 200 of 1,700, one more or less each."""
    leaves = np.full(CAPACITY, 1e-6)
    leaves[[0, 40, CAPACITY - 1]] = 10, 5, 2
    spec, initial = start(leaves, batch=1700)
    index = opened(name, spec, initial, monkeypatch).draw().index
    drawn = np.bincount(index, minlength=CAPACITY)[[0, 40, CAPACITY - 1]]
    off = np.abs(drawn - [1000, 500, 200]).max()
    assert off <= (150 if name.startswith("torchrl") else 2)  # 1 at each edge


@pytest.mark.parametrize("name", ["torch_tree_graph", "torch_prefix_graph"])
def test_a_row_of_leaf_zero_is_not_drawn(name, monkeypatch):
    leaves = np.resize([0.0, 1.0, 0.0, 0.0], CAPACITY)
    spec, initial = start(leaves)
    index = opened(name, spec, initial, monkeypatch).draw().index
    assert set(index.tolist()) == set(range(1, CAPACITY, 4))  # four draws each


def test_flashbax_writes_back_on_the_host_as_on_the_gpu(monkeypatch):
    """It has two functions for that, and takes the other one on a GPU."""
    pytest.importorskip("flashbax", exc_type=ImportError)
    from flashbax.buffers import prioritised_trajectory_buffer as buffer

    monkeypatch.setitem(buffer.SET_BATCH_FN, "cpu", buffer.SET_BATCH_FN["gpu"])
    spec, initial = start(spread_leaves())
    check_run(opened("flashbax_scan", spec, initial, monkeypatch), spec, initial)


def test_flashbax_starts_as_if_each_row_had_been_added(monkeypatch):
    """Its own `add` and `set_priorities`, beside the state that the peer puts there at once."""
    pytest.importorskip("flashbax", exc_type=ImportError)
    import jax

    spec, initial = start(spread_leaves(), alpha=1.0)
    peer = opened("flashbax_scan", spec, initial, monkeypatch)
    put = peer.carry.state
    state = peer.buffer.init(jax.tree.map(lambda rows: rows[0, 0], put.experience))
    add = jax.jit(peer.buffer.add)
    for row in range(CAPACITY):
        state = add(state, jax.tree.map(lambda rows, row=row: rows[0, row], put.experience))
    state = peer.buffer.set_priorities(state, np.arange(CAPACITY), initial.leaves)
    for mine, added in zip(jax.tree.leaves(put), jax.tree.leaves(state), strict=True):
        if mine.size == 1:
            continue  # the running maximum: theirs starts at 1
        np.testing.assert_allclose(mine, added, rtol=1e-5)
    assert bool(put.is_full) == bool(state.is_full)
    assert int(put.running_index) == int(state.running_index)
    assert int(put.current_index) == int(state.current_index)


@pytest.mark.parametrize("kind", ["TwoLevelTree", "PrefixSums"])
def test_the_compiled_step_is_the_step_before_it_is_compiled(kind):
    """Its trace alone, run without Inductor: the graph it makes on a GPU is checked there."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from peers.replay import torch_memory
    from peers.replay.torch_replay import ReplayStep

    spec, initial = start(spread_leaves())
    plain, traced = (ReplayStep(getattr(torch_memory, kind), spec, initial) for _ in range(2))
    compiled = torch.compile(traced.step, backend="eager", fullgraph=True, dynamic=False)
    for step, peer in ((plain.step, plain), (compiled, traced)):
        torch.manual_seed(1)
        for _ in range(2):
            batch = step()
        peer.found = batch
    for one, other in zip(plain.found, traced.found, strict=True):
        assert torch.equal(one, other)
    np.testing.assert_array_equal(plain.priorities(), traced.priorities())


def test_prefix_sums_and_the_tree_draw_the_same_rows():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from peers.replay.torch_memory import PrefixSums, TwoLevelTree
    from peers.replay.torch_replay import ReplayStep

    spec, initial = start(np.exp2(np.arange(CAPACITY) % 7 - 3.0))  # sums without rounding
    drawn = []
    for kind in (TwoLevelTree, PrefixSums):
        peer = ReplayStep(kind, spec, initial)
        torch.manual_seed(1)
        drawn.append(peer.draw().index)
    np.testing.assert_array_equal(*drawn)


def test_an_extension_that_can_not_be_loaded_leaves_torchrl_out_by_name(monkeypatch):
    """As one built for another PyTorch."""
    pytest.importorskip("torchrl", exc_type=ImportError)
    from torchrl.data.replay_buffers.samplers import prioritized

    monkeypatch.setattr(prioritized, "SumSegmentTreeFp32", None)
    spec, initial = start(spread_leaves())
    with pytest.raises(PeerUnavailableError, match="torchrl: SumSegmentTreeFp32 is not available"):
        open_replay_peer("torchrl_cpu_trees", spec, initial)


def test_the_replay_alone_has_one_label_a_peer():
    subject = BenchSubject(named_size("REPLAY"))
    assert list(labels(subject, ("float32", "tf32"))) == list(REPLAY_PEERS)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"replay.stratified": False}, r"replay\.stratified = True, not False"),
        ({"replay.beta_end": 1.0}, r"replay\.beta_end = 0\.4, not 1\.0"),
        ({"preset": "full"}, r"learn\.vaccine = False, not True"),
    ],
)
def test_a_replay_that_no_peer_has_is_refused_by_field(overrides, message):
    size = {"replay.capacity": 1024, "learn.batch_size": 32, "states": 16}
    subject = BenchSubject(named_size("REPLAY"), {**size, **overrides})
    with pytest.raises(PeerUnavailableError, match=message):
        problem(subject, "host")


@pytest.mark.gpu
@by_peer
def test_a_peer_steps_on_the_gpu(name, cuda, monkeypatch):
    spec, initial = start(spread_leaves(), kind=cuda.kind)
    peer = opened(name, spec, initial, monkeypatch)
    check_draws(peer, spec, initial)
    check_run(peer, spec, initial)
    peer.close()


@pytest.mark.gpu
@by_peer
def test_a_peer_draws_in_proportion_at_size_on_the_gpu(name, cuda, monkeypatch):
    """After a sample of steps, in every 64th row."""
    spec, initial = problem(BenchSubject(named_size("REPLAY")), cuda.kind)
    peer = opened(name, spec, initial, monkeypatch)
    peer.run(peer.quantum)
    assert chi_square(peer.draw().index, peer.priorities()) < CHI_SQUARE
    peer.close()
