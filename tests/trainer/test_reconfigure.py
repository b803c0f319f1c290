"""Another config for a running trainer: what goes on, what begins anew, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from capture_scenarios import config, steps, trainer_on

from onegraph.kernels.common.layout import Counter, Schedule
from onegraph.kernels.device import HostDevice
from onegraph.stages.registry import ALL, format_set
from onegraph.trainer.changes import FIXED, refused_change
from onegraph.trainer.trainer import Trainer, TrainerError

SETS = [frozenset(), frozenset({1}), frozenset({1, 2, 3}), frozenset({1, 2, 4}), ALL - {6}]

CHANGES = {
    "schedules": {
        "learn__lr__start": 0.02,
        "learn__tau__start": 0.3,
        "learn__epsilon__start": 0.2,
        "replay__beta_start": 0.9,
    },
    "batch": {"learn__batch_size": 20},
    "constants": {"replay__n_step": 5, "replay__alpha": 0.3, "learn__gamma": 0.8},
    "network": {"network__hidden": [8, 8], "network__double": False},
}


def through_a_change(stages: frozenset[int], changes: dict[str, object]) -> list:
    trainer = trainer_on(HostDevice(), stages)
    seen = steps(trainer, 3)
    trainer.reconfigure(config(**changes))
    return seen + steps(trainer, 3)


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_every_stage_takes_a_change_alike(changes) -> None:
    want = through_a_change(ALL, changes)
    assert len(set(want)) == 6
    for stages in SETS:
        assert through_a_change(stages, changes) == want, format_set(stages)


@pytest.mark.parametrize("stages", [frozenset(), ALL], ids=["stage 0", "all"])
def test_beta_and_epsilon_of_the_very_next_step(stages) -> None:
    """Written a step ahead: by hand, after 3 learning and 11 vector steps of 4 lanes."""
    trainer = trainer_on(HostDevice(), stages)  # 32 rows: 8 vector steps
    steps(trainer, 3)
    changed = config(
        replay__beta_start=0.5,
        replay__beta_steps=10,
        learn__epsilon__start=0.8,
        learn__epsilon__end=0.0,
        learn__epsilon__steps=80,  # env steps: 20 vector steps
        learn__lr__start=0.125,
    )
    trainer.reconfigure(changed)
    schedule = trainer.workspace.read("schedule")
    assert schedule[Schedule.BETA] == pytest.approx(0.5 + 0.5 * 3 / 10, rel=1e-15)
    assert schedule[Schedule.EPSILON] == pytest.approx(0.8 * (1 - 11 / 20), rel=1e-15)
    trainer.learn()
    after = trainer.workspace.read("schedule")
    assert after[Schedule.LEARNING_RATE] == 0.125
    assert after[Schedule.BETA] == pytest.approx(0.5 + 0.5 * 4 / 10, rel=1e-15)


def test_the_same_config_changes_nothing() -> None:
    want = steps(trainer_on(HostDevice()), 4)
    trainer = trainer_on(HostDevice())
    seen = steps(trainer, 2)
    trainer.reconfigure(config())
    assert set(trainer.learn().by_kind()) == {"graph_launch"}
    trainer.collect()
    seen.append((trainer.indices().tobytes(), trainer.parameters().tobytes()))
    assert seen + steps(trainer, 1) == want


def test_a_network_begins_with_its_optimiser_at_zero() -> None:
    trainer = trainer_on(HostDevice())
    steps(trainer, 3)
    ring = trainer.workspace.read("replay_reward")
    trainer.reconfigure(config(network__hidden=[24]))
    steps(trainer, 2)
    trainer.reconfigure(config(network__hidden=[16, 24]))
    state = trainer.state()
    np.testing.assert_array_equal(state["theta"], trainer.network.initial(0))
    np.testing.assert_array_equal(state["theta_target"], state["theta"])
    assert not state["adam_m"].any()
    assert not state["adam_v"].any()
    assert state["counters"][Counter.ADAM_TRUNK] == 0
    assert state["counters"][Counter.RNG] == 5
    np.testing.assert_array_equal(trainer.workspace.read("replay_reward")[:32], ring[:32])
    trainer.learn()
    assert trainer.workspace.read("counters")[Counter.ADAM_TRUNK] == 1


def test_layout_may_change_at_an_equal_size() -> None:
    """Buffers that keep their size keep no bits of the layers before."""
    trainer = trainer_on(HostDevice(), ALL, config(network__hidden=[8, 9]))
    steps(trainer, 2)
    size = trainer.network.size
    trainer.reconfigure(config(network__hidden=[9, 8]))
    assert trainer.network.size == size == 200
    np.testing.assert_array_equal(trainer.parameters(), trainer.network.initial(0))
    assert not trainer.workspace.read("grad").any()


def test_more_timed_steps_get_their_events() -> None:
    trainer = trainer_on(HostDevice())
    steps(trainer, 2)
    trainer.reconfigure(config(loop__timed_steps=5))
    for _ in range(5):
        trainer.learn(timed=True)
    assert trainer.timings().steps == (2, 3, 4, 5, 6)


def test_step_numbers_go_on() -> None:
    trainer = trainer_on(HostDevice())
    steps(trainer, 3)
    trainer.reconfigure(config(learn__batch_size=16))
    trainer.learn()
    assert [s.step for s in trainer.device.ledger.steps("learn")] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changes",
    [{"learn__batch_size": 255}, {"learn__batch_size": 255, "network__hidden": [64, 64]}],
    ids=["batch", "network"],
)
@pytest.mark.parametrize("slack", [0, 4096])
def test_what_does_not_fit_leaves_the_trainer_as_it_was(changes, slack) -> None:
    want = steps(trainer_on(HostDevice()), 5)
    need = trainer_on(HostDevice()).device._allocated  # type: ignore[attr-defined]
    trainer = trainer_on(HostDevice(memory_bytes=need + slack))
    seen = steps(trainer, 2)
    wide = {"loop__start_steps": 255, **changes}
    with pytest.raises(TrainerError, match=r"does not fit the device \(.* bytes asked for"):
        trainer.reconfigure(config(**wide))
    assert trainer.config == config()
    assert seen + steps(trainer, 3) == want


def test_more_than_the_replay_holds() -> None:
    """A replay that was halved at construction holds less than its config says."""
    full = config(replay__memory_cap_mb=1, replay__capacity=32_768, env__kind="chain")
    trainer = Trainer(full, HostDevice(), ALL)
    assert trainer.shapes.capacity < 32_768
    big = config(
        replay__memory_cap_mb=1,
        replay__capacity=32_768,
        learn__batch_size=20_000,
        loop__start_steps=20_000,
    )
    with pytest.raises(TrainerError, match=r"holds 8,192 rows.*batch_size = 20000.*need 20,000"):
        trainer.reconfigure(big)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seed": 3}, "seed"),
        ({"stages": "4"}, "stages"),
        ({"device": "host"}, "device"),
        ({"env__lanes": 2}, "env"),
        ({"env__max_episode_steps": 9}, "env"),
        ({"replay__capacity": 128}, "replay.capacity"),
        ({"replay__memory_cap_mb": 5}, "replay.memory_cap_mb"),
        ({"loop__epoch_steps": 10}, "loop.epoch_steps"),
    ],
)
def test_fields_that_a_running_trainer_is_bound_to(changes, field) -> None:
    trainer = Trainer(config(), HostDevice(), ALL)
    with pytest.raises(TrainerError, match=rf"^{field} can't change from .* make a new trainer"):
        trainer.reconfigure(config(**changes))
    assert trainer.config == config()


def test_every_bound_field_exists() -> None:
    assert refused_change(config(), config()) == ""
    for field in FIXED:
        value: object = config()
        for name in field.split("."):
            value = getattr(value, name)
