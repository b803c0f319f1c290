"""The learner's passes as branches: which they are, and that they compute the same bits."""

from __future__ import annotations

import itertools

import pytest
from capture_scenarios import FORKED, config, steps, trainer_on
from scratch_rules import run_poisoned

from onegraph.kernels.device import HostDevice
from onegraph.stages.program import Branches, GraphLaunch, StepProgram
from onegraph.stages.registry import ALL, apply, exact_sets, format_set
from onegraph.stages.runner import Runner
from onegraph.trainer.bench import SIZES
from onegraph.trainer.config import load_config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.network import QNetwork
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes


def forks(program: StepProgram) -> dict[str, list[list[int]]]:
    """By phase, the lengths of the branches of each fork."""
    (parent,) = program.phases[0].ops
    assert isinstance(parent, GraphLaunch)
    found: dict[str, list[list[int]]] = {}
    for child in parent.body:
        if isinstance(child, GraphLaunch):
            for op in child.body:
                if isinstance(op, Branches):
                    found.setdefault(child.name, []).append([len(b) for b in op.branches])
    return found


def programs(**overrides: object) -> DqnPrograms:
    """The programs of a config on the demo."""
    names = {name.replace("__", "."): value for name, value in overrides.items()}
    settings = load_config(None, names)
    environment, _ = build_environment(settings)
    network = QNetwork.of(settings, environment)
    return DqnPrograms(Shapes(settings, network, settings.replay.capacity), environment)


def unstaged(**overrides: object) -> StepProgram:
    """The learning step as stage 0 has it."""
    return programs(**overrides).learn()


def learn_program(**overrides: object) -> StepProgram:
    """The learning step at all stages."""
    parts = programs(**overrides)
    return apply(parts.learn(), ALL, parts)


def test_the_full_learners_passes_are_branches():
    assert forks(learn_program(preset="full")) == {
        "forward": [[15, 2]],  # the trunk; the quantile levels and their embedding
        # The two sides of the select pass and of the target pass; what is left of each, of the
        # select pass with the action values; the losses of the batch and of the vaccine batch.
        "ddqn": [[15, 2, 15, 2], [3, 2], [2, 2]],
        # The target pass' two sides, both value networks, the noised pass with its decoder.
        "aux": [[15, 2, 2, 2, 18]],
        # Down to the gate: batch, vaccine batch, both value networks, decoder; then the weights'
        # gradients, of which the four over all quantile levels are one launch; then the three
        # gradients through the spectral norm.
        "post_aux": [[17, 17, 2, 2, 16], [4, 3, 3, 3], [2, 2, 2]],
    }


def test_a_small_dqn_shares_launches_instead():
    program = learn_program(**SIZES["M"].fields)
    assert forks(program) == {}
    (parent,) = program.phases[0].ops
    assert isinstance(parent, GraphLaunch)
    assert parent.nodes() == 16


def test_a_large_dqn_has_two_passes_side_by_side():
    program = learn_program(learn__batch_size=2048, network__hidden=[1024, 1024])
    assert forks(program) == {"ddqn": [[3, 3]]}


def test_auxiliary_passes_run_beside_those_over_the_batch():
    program = learn_program(preset="full")
    (parent,) = program.phases[0].ops
    assert isinstance(parent, GraphLaunch)
    waits = {c.name: c.after for c in parent.body if isinstance(c, GraphLaunch)}
    assert {name: after for name, after in waits.items() if after is not None} == {
        "aux": ("spectral",),
        "post_aux": ("ddqn", "aux"),
    }
    assert "phase aux after spectral" in unstaged(preset="full").describe()
    # Without a phase's work, what stood before it is waited for.
    (parent,) = learn_program(**SIZES["M"].fields).phases[0].ops
    assert isinstance(parent, GraphLaunch)
    assert {c.after for c in parent.body if isinstance(c, GraphLaunch)} == {None}


def test_a_turn_of_the_devices_loop_has_them_side_by_side_too():
    trainer = captured()
    orders = []
    loop = trainer.device.loop

    def noted(label, turn, control, go, after=None):
        orders.append(([g.label for g in turn], after))
        return loop(label, turn, control, go, after)

    trainer.device.loop = noted  # type: ignore[method-assign]
    trainer.take_rounds(trainer.progress.learns + 2)
    trainer.close()
    ((labels, after),) = orders
    by_name = {name: [labels[j] for j in after[i]] for i, name in enumerate(labels)}
    assert by_name["aux"] == ["spectral"]
    assert by_name["post_aux"] == ["ddqn", "aux"]
    assert by_name["adam"] == ["adam_grad"]
    roots = [name for name, waits in by_name.items() if not waits]
    assert roots == labels[:1]


PARTS: dict[str, list[object]] = {
    "network.double": [True, False],
    "network.noisy": [True, False],
    "network.spectral_cap": [0.0, 4.0],
    "learn.vaccine": [True, False],
    "aux.denoise": [True, False],
}


@pytest.mark.slow
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("head", ["dqn", "iqn", "c51"])
def test_whatever_is_on_the_branches_hold_together(head, dueling):
    for values in itertools.product(*PARTS.values()):
        on = dict(zip(PARTS, values, strict=True))
        found = forks(
            learn_program(
                **{"preset": "full", "network.head": head, "network.dueling": dueling, **on}
            )
        )
        # A trunk and an embedding, or a trunk alone, a pass.
        sides = 1 + (head == "iqn")
        if on["network.double"]:
            assert len(found["ddqn"][0]) == 2 * sides
        assert len(found["aux"][0]) == sides + 2 + on["aux.denoise"]
        assert len(found["post_aux"][0]) == 3 + on["learn.vaccine"] + on["aux.denoise"]


@pytest.fixture(scope="module")
def trajectory():
    return run_of(frozenset())


def captured():
    return trainer_on(HostDevice(), ALL, config(**FORKED))


def run_of(stages):
    trainer = trainer_on(HostDevice(), stages, config(**FORKED))
    seen = steps(trainer, 2)
    if 6 in stages:
        assert {"forward", "ddqn", "aux", "post_aux"} == set(forks(trainer.learn_program))
        assert sum(trainer.graph_nodes().values()) > 100
    trainer.close()
    return seen


@pytest.mark.parametrize("stages", exact_sets(), ids=format_set)
def test_every_set_of_stages_gives_the_same_bits(stages, trajectory):
    assert run_of(stages) == trajectory


def test_branches_in_another_order_give_the_same_bits(trajectory, monkeypatch):
    entered = []

    def backwards(self, branches):
        with self.device.branches(len(branches)) as branch:
            for index, actions in reversed(list(enumerate(branches))):
                entered.append(index)
                with branch(index):
                    for action in actions:
                        action()

    monkeypatch.setattr(Runner, "_branch", backwards)
    assert run_of(ALL) == trajectory
    forked = [len(fork) for at in forks(captured().learn_program).values() for fork in at]
    assert entered == [index for count in forked for index in reversed(range(count))]


def test_nonsense_in_the_scratch_changes_nothing(trajectory):
    assert run_poisoned(HostDevice(), ALL, 2, **FORKED) == trajectory


def test_a_timed_step_has_them_too():
    trainer = trainer_on(HostDevice(), ALL, config(**FORKED))
    plain = trainer_on(HostDevice(), ALL, config(**FORKED))
    for _ in range(2):
        trainer.learn(timed=True)
        plain.learn()
    assert trainer.parameters().tobytes() == plain.parameters().tobytes()
