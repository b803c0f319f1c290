"""Another config for a running trainer: what goes on, what begins anew, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from capture_scenarios import config, steps, trainer_on
from trainer.setups import fill, full, make

from onegraph.kernels.common import layout
from onegraph.kernels.common.layout import Counter, Schedule
from onegraph.kernels.device import HostDevice
from onegraph.stages.registry import ALL, format_set, up_to
from onegraph.trainer.changes import FIXED, refused_change
from onegraph.trainer.config import Config, MismatchError
from onegraph.trainer.trainer import Progress, Trainer, TrainerError
from trainer import setups

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

SETS = [frozenset(), frozenset({1}), frozenset({1, 2, 3}), frozenset({1, 2, 4}), up_to(5)]

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
    want = through_a_change(ALL - {7}, changes)
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


# ------------------------------------------------------------------------ the full learner


def fresh_with(trainer: Trainer, changed: Config, **state: np.ndarray) -> Trainer:
    """A new trainer of another config that goes on from this one's state, parts of it replaced."""
    fresh = make(HostDevice(), changed, trainer.stages)
    progress = Progress(**vars(trainer.progress))
    fresh.restore({**trainer.state(), **state}, progress)
    return fresh


#: What no parameter depends on: numbers baked into the graph, and numbers in device memory.
KEPT = {
    "schedules": {"learn__lr__start": 0.02, "learn__tau__start": 0.3, "replay__beta_start": 0.9},
    "weight decay": {"learn__weight_decay": 0.3},
    "shares": {"learn__budget__q": 0.2, "learn__budget__denoise": 0.6},
    "norm": {"learn__max_grad_norm": 0.5},
    "denoising": {"aux__denoise_sigma": 0.5, "aux__denoise_weight": 2.0},
    "modulation": {"aux__modulate_k": 3.0, "aux__modulate_low": 0.1},
    "expectiles": {"aux__expectile_high": 0.9, "aux__expectile_low": 0.1},
    "quantiles": {"network__iqn__quantiles": 5, "network__iqn__kappa": 0.1},
    "readiness": {"network__iqn__ready_high": 0.02},
    "depth, penalty and cap": {
        "network__drop_path": 0.8,
        "network__gate_l1": 0.5,
        "network__spectral_cap": 0.3,
    },
    "batch": {"learn__batch_size": 7},
    "no vaccine": {"learn__vaccine": False},
    "no modulation": {"aux__modulate": False},
    "no budget": {"learn__budget__on": False},
}


#: Of these the host has copies, or uploads, as long as it computes what they say.
AT_STAGE_0 = ("schedules", "shares", "batch", "no vaccine")


@pytest.mark.parametrize(
    ("stages", "name"), [*(("all", name) for name in KEPT), *(("0", name) for name in AT_STAGE_0)]
)
def test_the_full_learner_goes_on_with_what_it_has_learned(name: str, stages: str) -> None:
    trainer = setups.steps(fill(make(HostDevice(), full(), stages)), 4)
    changed = full(**KEPT[name])
    fresh, before = fresh_with(trainer, changed), fresh_with(trainer, full())
    trainer.reconfigure(changed)
    if name == "schedules" and stages == "all":
        assert trainer.learn().by_kind() == {"graph_launch": 1}
    else:
        trainer.learn()
    trainer.collect()
    ends = [setups.end_of(setups.steps(t, n)) for t, n in ((trainer, 5), (fresh, 6), (before, 6))]
    assert [n for n, values in ends[0].items() if values != ends[1][n]] == []
    assert ends[0] != ends[2], "the change must show"
    assert set(trainer.workspace.buffers) == set(fresh.workspace.buffers), "no more, no less"


#: Other parameters: a learner that begins.
BEGUN = {
    "width": {"network__hidden": [7, 6]},
    "head": {"network__head": "c51"},
    "readiness": {"network__iqn__readiness": False},
    "attention": {"network__attention_heads": 1},
    "blocks": {"network__residual_blocks": 1},
    "no auxiliaries": {"aux__iql": False, "aux__modulate": False, "aux__denoise": False},
    "noise": {"network__noisy": True},
    "a layout of equal size": {"network__hidden": [8, 9]},
}


@pytest.mark.parametrize("name", BEGUN)
def test_a_learner_with_other_parameters_begins(name: str) -> None:
    trainer = setups.steps(fill(make(HostDevice(), full())), 4)
    changed = full(**BEGUN[name])
    counters = trainer.workspace.read("counters")
    counters[: layout.ADAM_GROUPS] = 0
    begun = make(HostDevice(), changed).state()
    learner = {n: v for n, v in begun.items() if not n.startswith(("replay_", "env_"))}
    kept = {"schedule", "history", "diagnostics"}
    anew = {n: v for n, v in learner.items() if n not in kept} | {"counters": counters}
    fresh = fresh_with(trainer, changed, **anew)
    trainer.reconfigure(changed)
    assert trainer.learn().by_kind()["capture"] > 5
    assert trainer.collect().by_kind()["capture"] > 2
    ends = [setups.end_of(setups.steps(t, n)) for t, n in ((trainer, 5), (fresh, 6))]
    assert [n for n, values in ends[0].items() if values != ends[1][n]] == []
    assert set(trainer.workspace.buffers) == set(fresh.workspace.buffers), "no more, no less"


def test_a_part_comes_back_as_if_it_had_never_gone() -> None:
    """Off, on again with another layout: nothing is left of its buffers before."""
    without = {"aux__denoise": False, "learn__vaccine": False, "network__spectral_cap": 0.0}
    trainer = setups.steps(fill(make(HostDevice(), full())), 3)
    trainer.reconfigure(full(**without))
    assert {"grad_aux", "grad_vaccine", "theta_normal"}.isdisjoint(trainer.workspace.buffers)
    setups.steps(trainer, 2)
    trainer.reconfigure(full(network__hidden=[8, 9]))
    for name in ("grad_aux", "grad_vaccine"):
        assert not trainer.workspace.read(name).any()
    np.testing.assert_array_equal(trainer.parameters(), trainer.network.initial(0))
    setups.steps(trainer, 2)
    assert np.isfinite(trainer.parameters()).all()


def test_attention_that_does_not_fit_leaves_the_trainer_as_it_was() -> None:
    want = setups.end_of(setups.steps(fill(make(HostDevice(), full())), 4))
    trainer = setups.steps(fill(make(HostDevice(), full())), 2)
    with pytest.raises(MismatchError, match=r"network\.attention_groups: 3 groups do not divide"):
        trainer.reconfigure(full(network__attention_groups=3))
    assert setups.end_of(setups.steps(trainer, 2)) == want


# ------------------------------------------------------------------------ what stays, what goes


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
