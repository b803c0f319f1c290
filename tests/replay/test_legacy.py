"""The CPU replay against the kernels' twins, and what only it has."""

import numpy as np
import pytest
from replay.contract import f32, i32, spec_of
from replay.implementations import KernelReplay, LegacyReplay, Replay, insert_slots

from onegraph.kernels.common.layout import SCHEDULES, Counter, Flag, Schedule
from onegraph.kernels.device import HostDevice
from onegraph.kernels.replay import tree
from onegraph.trainer.legacy.replay import (
    PrioritizedHostReplay,
    ReplaySpec,
    StalenessTracker,
    UniformHostReplay,
    allocate,
)


def drive(replay: Replay, steps: int = 40) -> list[list[object]]:
    """Insert, draw, assemble, weigh and update for a while; what came out, each step."""
    rng = np.random.default_rng(4)
    spec = replay.spec
    trace: list[list[object]] = []
    for step in range(steps):
        reward = rng.normal(size=spec.lanes)
        reward[rng.random(spec.lanes) < 0.1] = np.nan
        flags = rng.choice([0, 0, 0, Flag.TERMINATED, Flag.TRUNCATED], spec.lanes)
        insert_slots(replay, reward, flags)
        replay.counters[Counter.RNG] = step
        index, generation = replay.draw(24)
        out = [index, generation, *replay.assemble(index), replay.weights(index, 0.4)]
        td = rng.lognormal(0, 2, 24).astype(np.float32)
        td[rng.random(24) < 0.05] = np.inf
        late = step % 3 == 2
        if late:
            insert_slots(replay, rng.normal(size=spec.lanes))
        replay.update(index, generation, td)
        trace.append([a.tolist() for a in out])
    return trace


@pytest.mark.parametrize("alpha", [0.6, 0.0])
@pytest.mark.parametrize("stratified", [True, False])
def test_the_cpu_replay_gives_the_bits_of_the_kernels(alpha: float, stratified: bool) -> None:
    spec = ReplaySpec(
        lanes=3, slots=25, padded=8, seed=17, stratified=stratified, n_step=3, alpha=alpha
    )
    kernels, legacy = KernelReplay(HostDevice(), spec), LegacyReplay(spec)
    assert drive(kernels) == drive(legacy)
    names = [n for n in allocate(spec) if alpha or n != "replay_nodes"]
    for name in names:
        assert np.array_equal(kernels.read(name), legacy.read(name)), name


def test_uniform_draws_are_those_of_a_tree_of_ones() -> None:
    spec = spec_of(300, alpha=0.0)
    legacy = LegacyReplay(spec)
    rng = np.random.default_rng(1)
    insert_slots(legacy, np.zeros(200), rng.choice([0, Flag.INVALID], 200))
    nodes = np.empty(tree.node_count(300))
    tree.rebuild(legacy.read("replay_leaves"), nodes)
    thresholds = np.concatenate([rng.random(5000) * nodes[-1], np.arange(nodes[-1] + 2), [np.nan]])
    expected = tree.descend(legacy.read("replay_leaves"), nodes, thresholds)
    assert np.array_equal(legacy.locate(thresholds)[0], expected)


def test_uniform_replay_refuses_an_alpha() -> None:
    with pytest.raises(ValueError, match=r"alpha = 0, got alpha = 0\.5"):
        UniformHostReplay(spec_of(4, alpha=0.5))


def test_a_batch() -> None:
    legacy = LegacyReplay(spec_of(0, lanes=2, slots=4, n_step=2, gamma=0.5))
    insert_slots(legacy, [1, 2, 3, 4, 5, 6])
    schedule = np.full(SCHEDULES, np.nan)
    schedule[Schedule.BETA] = 1.0
    batch = legacy.replay.sample(6, legacy.counters, schedule)
    assert batch.batch_size == 6
    assert batch.indices.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.states[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.rewards.tolist() == [2.5, 4, 5.5, 7, 5, 6]
    assert batch.next_states[:, 7].tolist() == [2.5, 3.5, 4.5, 5.5, 4.5, 5.5]
    assert batch.discounts.tolist() == [0.25] * 4 + [0.5] * 2
    assert batch.weights.tolist() == [1] * 6
    assert batch.generations.tolist() == [1] * 6
    assert batch.episodes.tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.actions.tolist() == [0, 1] * 3


@pytest.mark.parametrize("alpha", [1.0, 0.0])
def test_size_and_readiness(alpha: float) -> None:
    legacy = LegacyReplay(spec_of(0, lanes=2, slots=3, alpha=alpha))
    replay = legacy.replay
    assert (replay.size, replay.can_sample(1)) == (0, False)
    insert_slots(legacy, [np.nan, np.nan])
    assert (replay.size, replay.can_sample(1)) == (2, False)
    insert_slots(legacy, [0, 0])
    assert (replay.size, replay.can_sample(4), replay.can_sample(5)) == (4, True, False)
    insert_slots(legacy, [0] * 8)
    assert replay.size == 6


@pytest.mark.parametrize("kind", [PrioritizedHostReplay, UniformHostReplay])
def test_a_replay_over_filled_arrays_knows_its_size(kind: type[PrioritizedHostReplay]) -> None:
    spec = spec_of(6, alpha=0.0)
    legacy = LegacyReplay(spec)
    insert_slots(legacy, [0, np.nan, 0])
    tree.rebuild(legacy.arrays["replay_leaves"], legacy.arrays["replay_nodes"])
    again = kind(spec, legacy.arrays)
    assert again.size == 3
    assert again.locate(np.array([0.0, 1.0, 2.0])).tolist() == [0, 2, 2]


def test_staleness_counts_steps_since_a_priority_was_written() -> None:
    tracker = StalenessTracker(5)
    assert tracker.mean(7) == 0.0
    tracker.touch([0, 1, 2], 0)
    tracker.touch([2, 2], 6)
    assert tracker.mean(10) == (10 + 10 + 4) / 3
    assert tracker.of([0, 2, 4], 10).tolist() == [10, 4, -1]


def test_an_update_is_fresh_and_a_dropped_one_is_not() -> None:
    legacy = LegacyReplay(spec_of(3))
    insert_slots(legacy, [0, 0, 0])
    legacy.counters[Counter.RNG] = 5
    schedule = np.zeros(SCHEDULES)
    batch = legacy.replay.sample(3, legacy.counters, schedule)
    stale = batch.generations + np.array([0, 0, 1], np.uint32)
    legacy.update(i32(0, 1, 2), stale, f32(1, np.nan, 1))
    assert legacy.replay.staleness.of([0, 1, 2], 5).tolist() == [0, 5, 5]
