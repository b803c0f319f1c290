"""What is done to the gradient before Adam: shares of its norm, and what a vaccine forbids."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from trainer.contract import FOUR_SETS, loss_of, values_of
from trainer.setups import fill, full, make, short, small, steps

from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.budget import COMPONENT_OF, Component
from onegraph.stages.program import Launch, Phase, StepProgram
from onegraph.stages.runner import Runner
from onegraph.trainer.blocks.layout import Group
from onegraph.trainer.config import Config
from onegraph.trainer.learner import GRAD, GRAD_AUX, GRAD_VACCINE
from onegraph.trainer.trainer import Trainer

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

BUDGET = {"component_norms", "apply_budget"}
VACCINE = {"vaccine_partial", "project_gradient"}

Gradient = NDArray[np.float64]


def stepped(config: Config, count: int = 3) -> Trainer:
    return steps(fill(make(HostDevice(), config)), count)


def gradients(
    trainer: Trainer, phases: Iterable[str] = ("post_aux",), without: Iterable[str] = ()
) -> dict[str, Gradient]:
    """The gradient buffers after these phases of a step, some kernels left out."""
    work = trainer.programs.learner.work
    ops = tuple(
        op
        for name in phases
        for op in work[name]
        if not (isinstance(op, Launch) and op.kernel in set(without))
    )
    program = StepProgram("again", "learn", (Phase("again", ops),), trainer.learn_program.buffers)
    Runner(program, trainer.workspace).step()
    there = [n for n in (GRAD, GRAD_AUX, GRAD_VACCINE) if n in trainer.workspace.buffers]
    found = {n: trainer.workspace.read(n).astype(np.float64) for n in there}
    if GRAD_AUX in there and set(without) >= BUDGET:
        # The budget does not read what is left here of the step before.
        start, end = trainer.network.layout.range_of(Group.DENOISE)
        found[GRAD][start:end] = 0.0
    return found


# ------------------------------------------------------------------------ vaccine


def rows(trainer: Trainer, first: int, count: int) -> dict[str, NDArray[np.float64]]:
    """`count` rows of the drawn batch in float64, with their bootstrapped ``target``."""
    read, network = trainer.workspace.read, trainer.network
    names = ("s_tm1", "a_tm1", "r_t", "discount_t", "s_t", "weight")
    batch = {
        n: read(n)[first : first + count].astype(np.int64 if n == "a_tm1" else np.float64)
        for n in names
    }
    theta, behind = (read(n).astype(np.float64) for n in ("theta", "theta_target"))
    chosen = values_of(theta, network, batch["s_t"]).argmax(axis=1)
    value = values_of(behind, network, batch["s_t"])[np.arange(count), chosen]
    return batch | {"target": batch["r_t"] + batch["discount_t"] * value}


def test_the_vaccine_is_the_second_half_of_the_draw() -> None:
    """Its losses and its gradient are those of its rows, by central differences in float64."""
    config = short(learn__vaccine=True, learn__batch_size=6, network__hidden=[6])
    trainer = stepped(config)
    read = trainer.workspace.read
    assert read("index").shape == (12,)
    assert (read("index")[:6] != read("index")[6:]).any()
    found = gradients(trainer, ("forward", "ddqn", "post_aux"), VACCINE)
    theta = read("theta").astype(np.float64)
    for prefix, name, first in (("", GRAD, 0), ("vaccine_", GRAD_VACCINE, 6)):
        batch = rows(trainer, first, 6)
        mean, td = loss_of(theta, trainer.network, batch, config)
        np.testing.assert_allclose(read(f"{prefix}td"), td, rtol=0, atol=1e-5)
        assert read(f"{prefix}loss").mean() == pytest.approx(mean, rel=1e-4)
        slope = np.zeros_like(theta)
        for i in range(theta.size):
            step = np.zeros_like(theta)
            step[i] = 1e-6
            above, below = (
                loss_of(theta + s * step, trainer.network, batch, config)[0] for s in (1, -1)
            )
            slope[i] = (above - below) / 2e-6
        # float32 against float64
        assert np.linalg.norm(found[name] - slope) <= 2e-5 * np.linalg.norm(slope)


@pytest.mark.parametrize("stages", FOUR_SETS)
def test_the_priorities_of_the_vaccines_rows_stay(stages: str) -> None:
    config = short(learn__vaccine=True, learn__batch_size=8)
    trainer = steps(fill(make(HostDevice(), config, stages)), 3)
    seen = 0
    for _ in range(5):
        leaves = trainer.workspace.read("replay_leaves")
        trainer.learn()
        now, index = trainer.workspace.read("replay_leaves"), trainer.indices()
        main, vaccine = index[:8], np.setdiff1d(index[8:], index[:8])
        np.testing.assert_array_equal(now[vaccine], leaves[vaccine])
        assert (now[main] != leaves[main]).all()
        seen += len(vaccine)
    assert seen > 20
    assert trainer.history(1)["loss"][0] == pytest.approx(
        trainer.workspace.read("loss").astype(np.float64).mean()
    )


def hand_made(trainer: Trainer, rewards: list[float]) -> None:
    """A draw of terminal rows: states 0 and 1 for the batch, then the same for the vaccine."""
    read, write = trainer.workspace.read, trainer.workspace.write
    states = np.zeros_like(read("s_tm1"))
    states[[0, 2], 0] = states[[1, 3], 1] = 1.0
    write("s_tm1", states)
    write("s_t", np.zeros_like(states))
    write("a_tm1", np.zeros(4, np.int32))
    write("r_t", np.array(rewards, np.float32))
    write("discount_t", np.zeros(4, np.float32))
    write("weight", np.ones(4, np.float32))


def projected(rewards: list[float], **changes: object) -> tuple[dict[str, Gradient], ...]:
    """The gradients of the hand-made draw before and after the projection."""
    config = small(learn__vaccine=True, learn__batch_size=2, learn__loss="mse", **changes)
    trainer = stepped(config, 0)
    trainer.learn()
    hand_made(trainer, rewards)
    phases = ("forward", "ddqn", "aux", "post_aux")
    before = gradients(trainer, phases, VACCINE)
    return before, gradients(trainer, phases)


def test_what_speaks_against_the_vaccine_is_taken_out() -> None:
    """State 1 is worth 3 to the batch and -2 to the vaccine; state 0 agrees a little."""
    before, after = projected([1.0, 3.0, 1.0, -2.0])
    g, v = before[GRAD], before[GRAD_VACCINE]
    assert g @ v < -0.1 * np.linalg.norm(g) * np.linalg.norm(v)
    np.testing.assert_array_equal(after[GRAD_VACCINE], v)
    applied = after[GRAD]
    # float32 numbers: each is rounded by 2^-24 of itself
    assert abs(applied @ v) <= 2**-22 * np.linalg.norm(applied) * np.linalg.norm(v)
    np.testing.assert_allclose(applied, g - (g @ v) / (v @ v) * v, rtol=0, atol=1e-6)
    assert np.linalg.norm(applied) > 0.1 * np.linalg.norm(g)


def test_opposite_batches_leave_nothing() -> None:
    """Values are 0 at first, so that rewards of one size and two signs give g and -g."""
    config = small(learn__vaccine=True, learn__batch_size=2, learn__loss="mse")
    trainer = stepped(config, 0)
    trainer.learn()
    theta = trainer.workspace.read("theta")
    for part in ("weight", "bias"):
        trainer.network.layout[f"head.{part}"].values(theta)[...] = 0.0
    trainer.workspace.write("theta", theta)
    hand_made(trainer, [1.0, 2.0, -1.0, -2.0])
    phases = ("forward", "ddqn", "post_aux")
    before = gradients(trainer, phases, VACCINE)
    np.testing.assert_array_equal(before[GRAD], -before[GRAD_VACCINE])
    assert np.abs(before[GRAD]).max() > 0.1
    assert np.abs(gradients(trainer, phases)[GRAD]).max() <= 1e-6


def test_batches_that_agree_are_left_as_they_are() -> None:
    before, after = projected([1.0, 3.0, 1.0, 2.0])
    assert before[GRAD] @ before[GRAD_VACCINE] > 0.0
    np.testing.assert_array_equal(after[GRAD], before[GRAD])


def test_the_projection_is_of_the_budgets_result() -> None:
    """Scaled apart afterwards, the components would speak against the vaccine again."""
    before, after = projected(
        [1.0, 3.0, 1.0, -2.0],
        network__gate=True,
        aux__denoise=True,
        learn__budget__on=True,
        learn__max_grad_norm=0.05,
    )
    applied, v = after[GRAD], after[GRAD_VACCINE]
    assert before[GRAD] @ v < 0.0
    assert abs(applied @ v) <= 2**-22 * np.linalg.norm(applied) * np.linalg.norm(v)
    assert np.linalg.norm(applied) > 0.0


# ------------------------------------------------------------------------ budget


def components(trainer: Trainer, gradient: Gradient) -> dict[Component, Gradient]:
    """A gradient's parts by component, each with zeros elsewhere."""
    parts = {component: np.zeros_like(gradient) for component in Component}
    for group in Group:
        start, end = trainer.network.layout.range_of(group)
        parts[COMPONENT_OF[group]][start:end] = gradient[start:end]
    return parts


def shares_of(config: Config) -> dict[Component, float]:
    budget = config.learn.budget
    return {component: getattr(budget, component.name.lower()) for component in Component}


@pytest.mark.parametrize("limit", [1e-3, 0.05, 1e6])
def test_each_component_is_held_to_its_share(limit: float) -> None:
    config = full(learn__vaccine=False, learn__max_grad_norm=limit)
    trainer = stepped(config)
    raw = gradients(trainer, without=BUDGET)
    applied = gradients(trainer)[GRAD]
    parts = components(trainer, raw[GRAD])
    # The denoising loss has the decoder and what it gives the trunk.
    assert not parts[Component.DENOISE].any()
    parts[Component.DENOISE] = raw[GRAD_AUX]
    wanted, scaled = np.zeros_like(applied), 0
    for component, share in shares_of(config).items():
        norm = np.linalg.norm(parts[component])
        assert norm > 0.0
        scale = min(1.0, share * limit / norm)
        wanted += scale * parts[component]
        scaled += scale < 1.0
    np.testing.assert_allclose(applied, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    assert scaled == {1e-3: 6, 1e6: 0}.get(limit, scaled)
    if limit == 0.05:
        assert 0 < scaled < len(Component)
    # The parts' norms add up to no more than the limit, so that the clip has nothing left to do.
    assert np.linalg.norm(applied) <= limit * (1 + 1e-6)


def test_without_a_budget_adam_is_given_the_sum() -> None:
    trainer = stepped(full(learn__vaccine=False, learn__budget__on=False))
    raw = gradients(trainer, without=BUDGET)
    assert np.abs(raw[GRAD_AUX]).max() > 0.0
    applied = gradients(trainer)[GRAD]
    np.testing.assert_allclose(applied, raw[GRAD] + raw[GRAD_AUX], rtol=1e-6, atol=1e-12)


#: A component whose share is nothing, and who has it instead; the groups that then stay.
NOTHING: dict[str, tuple[dict[str, object], set[Group]]] = {
    "gate": (
        {"learn__budget__selectivity": 0.0, "learn__budget__q": 0.75},
        {Group.SELECTIVITY},
    ),
    "attention": (
        {"learn__budget__attention": 0.0, "learn__budget__q": 0.75},
        {Group.ATTENTION},
    ),
    "value networks": (
        {"learn__budget__iql_high": 0.0, "learn__budget__iql_low": 0.0, "learn__budget__q": 0.8},
        {Group.IQL, Group.IQL_LOW},
    ),
}


@pytest.mark.parametrize("vaccine", [False, True])
@pytest.mark.parametrize("name", NOTHING)
def test_a_share_of_nothing_learns_nothing(name: str, vaccine: bool) -> None:
    """Neither from the loss, nor from what is projected out of the other components."""
    changes, still = NOTHING[name]
    # The denoising loss has a share of its own, and a gradient in gate and attention.
    changes = {**changes, "aux__denoise": False, "learn__weight_decay": 0.0}
    trainer = stepped(full(learn__vaccine=vaccine, **changes), 0)
    removed = []
    for _ in range(24):
        steps(trainer, 1)
        removed += [trainer.workspace.read("vaccine_removed")[0]] if vaccine else []
    assert not vaccine or min(removed) < 0.0
    theta, start = trainer.parameters(), trainer.network.initial(trainer.config.seed)
    for group in Group:
        first, end = trainer.network.layout.range_of(group)
        if first < end:
            moved = (theta[first:end] != start[first:end]).any()
            assert moved == (group not in still), group


# ------------------------------------------------------------------------ modulation


@pytest.mark.parametrize("factor", [0.25, 3.0])
@pytest.mark.parametrize("stages", FOUR_SETS)
def test_modulation_scales_what_the_priorities_are_made_of(stages: str, factor: float) -> None:
    """And nothing else: the published errors, and the gradient, are those of the loss."""
    bounds = {"aux__modulate_low": factor, "aux__modulate_high": factor}
    plain, scaled = (
        steps(fill(make(HostDevice(), small(aux__iql=True, **changes), stages)), 0)
        for changes in ({}, {"aux__modulate": True, **bounds})
    )
    for trainer in (plain, scaled):
        trainer.learn()
    np.testing.assert_array_equal(scaled.parameters(), plain.parameters())
    assert scaled.history(1)["td_mean"] == plain.history(1)["td_mean"]
    errors = plain.workspace.read("td")
    np.testing.assert_array_equal(scaled.workspace.read("td"), np.float32(factor) * errors)
    wanted = (np.abs(np.float64(factor) * errors) + 1e-6) ** 0.6
    np.testing.assert_allclose(
        scaled.workspace.read("replay_leaves")[scaled.indices()], wanted, rtol=1e-6
    )
