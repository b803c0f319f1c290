"""What stage 7 must do on every device, as tests over a fixture ``open_device``.

The network has two hidden layers of whole fours, so that there are fused kernels for it; each test
asserts that they are in the step. The candidates are named, so that nothing is measured.
"""

from __future__ import annotations

import numpy as np
import pytest
from trainer.setups import (
    OpenDevice,
    chain,
    end_of,
    fill,
    full,
    make,
    market,
    steps,
    trajectory,
)

from onegraph.kernels.common.layout import Diagnostic
from onegraph.stages.difference import RELATIVE_BOUND, TRAVELLED_BOUND, distance
from onegraph.stages.program import Launch, StepProgram
from onegraph.stages.registry import up_to
from onegraph.trainer.config import Config, load_config, override_config
from onegraph.trainer.fusing import FusionError
from onegraph.trainer.trainer import Trainer
from trainer.proofs import SHORTER, learned

SIX, SEVEN = up_to(6), up_to(7)

#: One candidate of each way that differs, and the first that the host takes.
NAMES = ["rows3-cluster8", "rows5-cluster4", "rows8-cluster8"]

#: Adam divides by the root of the second moment, which for a gradient that cancels to nothing is
#: rounding; eps is put above that. Priorities are uniform, so that rounding moves no draw.
STEADY: dict[str, object] = {
    "network__hidden": [16, 8],
    "replay__alpha": 0.0,
    "learn__epsilon__start": 1.0,
    "learn__epsilon__end": 1.0,
    "learn__lr__start": 1e-3,
    "learn__adam_eps": 1e-5,
}

#: Every choice that reaches the fused kernels.
WAYS: dict[str, Config] = {
    "chain": chain(**STEADY),
    "market": market(**STEADY),
    "squared": chain(**STEADY, learn__loss="mse"),
    "not double": chain(**STEADY, network__double=False),
    "plain": chain(**STEADY, network__dueling=False, network__double=False),
    "hard target": chain(**STEADY, learn__target="hard", learn__target_every=7),
    "not clipped": chain(**STEADY | {"learn__max_grad_norm": 0.0}),
    "not stratified": chain(**STEADY, replay__stratified=False),
    "weight decay": chain(**STEADY, learn__weight_decay=0.1),
    "odd batch": chain(**STEADY, learn__batch_size=37),
    "1-step": chain(**STEADY | {"replay__n_step": 1}),
    "prioritized": chain(**STEADY | {"replay__alpha": 0.6}),
}


def kernels(program: StepProgram) -> set[str]:
    """Every kernel of a step, in graphs and outside."""
    return {op.kernel for _, op, _ in program.all_ops() if isinstance(op, Launch)}


def fused(open_device: OpenDevice, config: Config, name: str = NAMES[0]) -> Trainer:
    """A trainer at every stage, whose step is three kernels."""
    device = open_device()
    if device.largest_cluster == 1:
        pytest.skip(f"{device.name} forms no clusters of blocks")
    config = override_config(config, {"fusion": name}, "the test")
    trainer = make(device, config, "all")
    assert trainer.fusion is not None
    assert trainer.fusion.name == name
    assert kernels(trainer.learn_program) == {"draw_rows", "td_pass", "apply_step"}
    return trainer


class FusedContract:
    @pytest.mark.parametrize("name", NAMES)
    def test_two_runs_are_one(self, open_device: OpenDevice, name: str) -> None:
        config = chain(network__hidden=[16, 8])
        first, second = (trajectory(fused(open_device, config, name), 50) for _ in range(2))
        assert first == second
        assert len(set(first.indices)) == 50

    @pytest.mark.parametrize("way", WAYS)
    def test_it_agrees_with_stage_6_to_rounding(self, open_device: OpenDevice, way: str) -> None:
        config = WAYS[way]
        runs = []
        for trainer in (make(open_device(), config, SIX), fused(open_device, config)):
            drawn = []
            fill(trainer)
            start = trainer.parameters()
            for _ in range(50):
                trainer.learn()
                drawn.append(trainer.indices().tobytes())
                trainer.collect()
            runs.append((drawn, trainer.state(), trainer.workspace.read("record")))
            trainer.close()
        (wanted, six, record), (found, seven, published) = runs
        assert found == wanted
        for name in ("theta", "theta_target"):
            _, relative, travelled = distance(seven[name], six[name], start)
            assert relative <= RELATIVE_BOUND, name
            assert travelled <= TRAVELLED_BOUND, name
        for name in ("counters", "schedule", "diagnostics", "replay_generation", "skip"):
            np.testing.assert_array_equal(seven[name], six[name], err_msg=name)
        np.testing.assert_allclose(
            seven["replay_leaves"], six["replay_leaves"], rtol=2e-3, atol=1e-3
        )
        np.testing.assert_allclose(published, record, rtol=2e-3, atol=1e-6)

    def test_a_step_is_one_graph_launch_within_its_budget(self, open_device: OpenDevice) -> None:
        trainer = steps(fill(fused(open_device, chain(network__hidden=[16, 8]))), 2)
        allowed = trainer.budget(trainer.learn_program)
        for timed in (False, True, True, False):
            counts = trainer.learn(timed=timed).counts
            allowed.check(counts, trainer.learn_program, timed=timed)
            assert counts == trainer.learn_program.calls(timed=timed)
        assert sum(trainer.graph_nodes().values()) == 3
        assert list(trainer.timings().phases) == ["draw_and_td", "apply_step"]
        trainer.close()

    def test_a_state_goes_on_as_if_nothing_had_been(self, open_device: OpenDevice) -> None:
        config = chain(network__hidden=[16, 8])
        straight = steps(fill(fused(open_device, config)), 30)
        first = steps(fill(fused(open_device, config)), 15)
        state, progress = first.state(), first.progress
        first.close()
        second = fused(open_device, config)
        second.restore(state, progress)
        steps(second, 15)
        wanted, found = end_of(straight), end_of(second)
        assert [n for n in wanted if wanted[n] != found[n]] == []
        straight.close()
        second.close()

    def test_a_state_goes_on_at_other_stages(self, open_device: OpenDevice) -> None:
        """From the fused kernels to none and back, as near as rounding."""
        config = chain(**STEADY)
        straight = steps(fill(make(open_device(), config, SIX)), 30)
        start = straight.network.initial(config.seed)
        first = steps(fill(fused(open_device, config)), 15)
        state, progress = first.state(), first.progress
        first.close()
        second = make(open_device(), config, "0")
        second.restore(state, progress)
        steps(second, 15)
        _, relative, travelled = distance(second.parameters(), straight.parameters(), start)
        assert relative <= RELATIVE_BOUND
        assert travelled <= TRAVELLED_BOUND
        straight.close()
        second.close()

    def test_another_config_takes_other_kernels(self, open_device: OpenDevice) -> None:
        config = chain(network__hidden=[16, 8])
        trainer = steps(fill(fused(open_device, config)), 5)

        def change(**values: object) -> set[str]:
            fields = {name.replace("__", "."): value for name, value in values.items()}
            trainer.reconfigure(override_config(trainer.config, fields, "the test"))
            steps(trainer, 3)
            assert np.isfinite(trainer.parameters()).all()
            return kernels(trainer.learn_program)

        three = {"draw_rows", "td_pass", "apply_step"}
        assert change(fusion="rows8-cluster4", learn__batch_size=20) == three
        assert trainer.fusion is not None
        assert trainer.fusion.name == "rows8-cluster4"
        assert not three & change(fusion="none")
        assert change(fusion="rows3-cluster4", network__hidden=[12, 4]) == three
        with pytest.raises(FusionError, match=r"choose from auto, none, wide, .*; there are no"):
            change(network__hidden=[12])
        assert trainer.config.network.hidden == (12, 4)
        assert kernels(trainer.learn_program) == three
        assert not three & change(fusion="auto", network__hidden=[12])
        trainer.close()

    def test_a_changed_schedule_keeps_the_graph(self, open_device: OpenDevice) -> None:
        config = chain(network__hidden=[16, 8])
        trainer = steps(fill(fused(open_device, config)), 5)
        runner = trainer.runners["learn"]
        fields = {"fusion": NAMES[0], "learn.lr.start": 1e-30}
        trainer.reconfigure(override_config(config, fields, "the test"))
        before = trainer.parameters()
        steps(trainer, 2)
        assert trainer.runners["learn"] is runner
        np.testing.assert_array_equal(trainer.parameters(), before)
        trainer.close()

    def test_a_gradient_that_is_no_number_skips_the_step(self, open_device: OpenDevice) -> None:
        """A target network with a NaN in its head makes every TD error, and the gradient, NaN."""
        trainer = fused(open_device, chain(network__hidden=[16, 8], network__dueling=False))
        steps(fill(trainer), 5)
        space = trainer.workspace
        target = space.read("theta_target")
        broken = target.copy()
        trainer.network.layout["head.bias"].values(broken)[:] = np.nan
        before = {name: space.read(name) for name in ("theta", "adam_m", "adam_v")}
        space.write("theta_target", broken)
        for skipped in (1, 2):
            leaves, counted = space.read("replay_leaves"), space.read("diagnostics")
            trainer.learn()
            for name, values in before.items():
                np.testing.assert_array_equal(space.read(name), values, err_msg=name)
            np.testing.assert_array_equal(space.read("theta_target"), broken)
            seen = trainer.history(1)
            assert seen["skipped"].tolist() == [skipped]
            assert seen["adam_step"].tolist() == [6]  # t of the first is not used up
            assert np.isnan(seen["loss"]).all()
            nan = np.isnan(space.read("td"))
            assert 0 < nan.sum() < len(nan)
            kept = trainer.indices()[nan]
            np.testing.assert_array_equal(space.read("replay_leaves")[kept], leaves[kept])
            counted = space.read("diagnostics") - counted
            assert counted[Diagnostic.NONFINITE_TD] == nan.sum()
        space.write("theta_target", target)
        steps(trainer, 1)
        seen = trainer.history(1)
        assert (seen["adam_step"][0], seen["skipped"][0]) == (6, 2)
        assert (trainer.parameters() != before["theta"]).any()
        trainer.close()

    def test_other_learners_keep_their_phases(self, open_device: OpenDevice) -> None:
        device = open_device()
        if device.runs_later:
            pytest.skip("what a GPU takes, it measures")
        trainers = [make(device, full(fusion="auto"), stages) for stages in (SIX, "all")]
        assert trainers[0].learn_program == trainers[1].learn_program
        assert trainers[0].fusion is None  # nobody asked
        assert trainers[1].fusion is not None
        assert trainers[1].fusion.name == "none"
        for trainer in trainers:
            trainer.close()


class FusedProofContract:
    """Half a minute on a CPU, so that only a GPU's tests and the long ones run it."""

    @pytest.mark.slow
    def test_the_chain_is_learned_to_its_exact_values(self, open_device: OpenDevice) -> None:
        fields = SHORTER | {"network.hidden": [32, 16], "fusion": NAMES[0]}
        q = learned(open_device, load_config("chain", fields), "all")
        np.testing.assert_allclose(q[:, 1], [0.6561, 0.729, 0.81, 0.9, 1], rtol=0, atol=1e-3)
