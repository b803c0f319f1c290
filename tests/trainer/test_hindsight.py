"""Hindsight in the trainer: who may ask for it, what a step does, and how success is counted."""

import numpy as np
import pytest
from trainer.setups import bit_flip, chain, fill, make, market, steps

from onegraph.kernels.device import HostDevice
from onegraph.kernels.env.env_bit_flip import first_bits
from onegraph.kernels.replay.hindsight_assemble import Strategy
from onegraph.stages.program import Launch
from onegraph.trainer.cli.train import print_result
from onegraph.trainer.config import MismatchError
from onegraph.trainer.envs.base import Goal
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.evaluation import GoalEvaluator
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.loop import Loop

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")


def environment_of(config) -> BitFlipEnvironment:
    environment, setup = build_environment(config)
    assert setup is None
    assert isinstance(environment, BitFlipEnvironment)
    return environment


@pytest.mark.parametrize(("most", "wanted"), [(0, 4), (9, 9)])
def test_bit_flip_is_built_by_name_and_truncated_after_its_bits(most, wanted):
    made = environment_of(bit_flip(env__max_episode_steps=most))
    assert (made.lanes, made.bits, made.max_steps) == (4, 4, wanted)
    assert (made.observation_width, made.actions) == (8, 4)
    assert made.goal == Goal(achieved=0, desired=4, width=4)


def test_the_chance_is_k_of_k_plus_1():
    config = bit_flip(hindsight__k=3, hindsight__strategy="final")
    found = relabelling(config, environment_of(config))
    assert found is not None
    assert (found.strategy, found.share, found.goal.desired) == (Strategy.FINAL, 0.75, 4)
    off = bit_flip(hindsight__strategy="none")
    assert relabelling(off, environment_of(off)) is None


@pytest.mark.parametrize("config", [chain, market])
def test_hindsight_needs_an_environment_with_goals(config):
    with pytest.raises(MismatchError, match=r"hindsight\.strategy: 'future' needs observations"):
        make(HostDevice(), config(hindsight__strategy="future"))


@pytest.mark.parametrize("stages", ["1", "2,1"])
def test_hindsight_adds_no_launch(stages):
    """Returns and gathers are of other kernels; what stands around them stays.

    From stage 4 on one kernel samples a batch without hindsight, and goals come between its parts.
    """

    def launches(strategy):
        trainer = make(HostDevice(), bit_flip(hindsight__strategy=strategy), stages)
        found = [
            op.kernel for _, op, _ in trainer.learn_program.all_ops() if isinstance(op, Launch)
        ]
        trainer.close()
        return found

    other = {
        "nstep_assemble": "hindsight_assemble",
        "gather_rows": "gather_relabelled",
        "sample_batch": "sample_relabelled",
    }
    assert [other.get(name, name) for name in launches("none")] == launches("future")
    assert launches("none") != launches("future")


@pytest.mark.parametrize("stages", ["0", "1", "all"])
def test_a_batch_holds_the_goals_that_its_rewards_are_of(stages):
    """One step: the reward is 0 and the value ends just where the next state is its goal."""
    trainer = make(HostDevice(), bit_flip(replay__n_step=1, hindsight__k=1), stages)
    steps(fill(trainer), 12)
    read = trainer.workspace.read
    reached = relabelled = 0
    for _ in range(8):
        trainer.learn()
        after, before = read("s_t"), read("s_tm1")
        there = (after[:, :4] == after[:, 4:8]).all(axis=1)
        np.testing.assert_array_equal(before[:, 4:], after[:, 4:])
        np.testing.assert_array_equal(read("r_t"), np.where(there, 0, -1))
        np.testing.assert_array_equal(read("discount_t"), np.where(there, 0, np.float32(0.98)))
        kept = read("replay_state")[trainer.indices()]
        np.testing.assert_array_equal(before[:, :4], kept[:, :4])
        relabelled += np.count_nonzero((before[:, 4:8] != kept[:, 4:8]).any(axis=1))
        reached += np.count_nonzero(there)
    assert 0 < relabelled < 8 * 32
    assert 0 < reached < 8 * 32
    trainer.close()


def first_bit_only(**changes):
    """A trainer whose network values all actions alike, so that the greedy one is the first."""
    trainer = make(HostDevice(), bit_flip(**changes))
    trainer.workspace.write("theta", np.zeros(trainer.network.size, np.float32))
    return trainer


@pytest.mark.parametrize("episodes", [1, 37, 500])
def test_success_is_a_goal_reached_in_the_first_episode_of_a_lane(episodes):
    """Flipping the first bit over and over reaches a goal that has the other bits already."""
    trainer = first_bit_only(env__bits=2)
    evaluator = GoalEvaluator(
        trainer.programs, trainer.workspace, environment_of(trainer.config), episodes
    )
    drawn = first_bits(trainer.config.seed + 2**63, np.zeros(episodes, np.int64), 2)
    wanted = drawn[:, 1] == drawn[:, 3]
    for _ in range(2):  # the same episodes every time
        np.testing.assert_array_equal(evaluator.reached(), wanted)
        assert evaluator.success_rate() == wanted.mean()
    trainer.close()


def test_an_evaluation_leaves_training_as_it_is():
    one, other = (fill(make(HostDevice(), bit_flip())) for _ in range(2))
    evaluator = GoalEvaluator(one.programs, one.workspace, environment_of(one.config))
    for _ in range(3):
        evaluator.success_rate()
        steps(one, 2)
        steps(other, 2)
    after, wanted = one.state(), other.state()
    for name, values in wanted.items():
        np.testing.assert_array_equal(after[name], values, err_msg=name)
    one.close()
    other.close()


def test_an_epoch_is_scored_by_its_success_rate(tmp_path, capsys):
    config = bit_flip(loop__total_env_steps=64 + 4 * 15)
    trainer = make(HostDevice(), config)
    (epoch,) = Loop(trainer, tmp_path).run()
    rate = GoalEvaluator(trainer.programs, trainer.workspace, trainer.environment).success_rate()
    assert epoch.score == epoch.extra["success_rate"] == rate
    print_result(trainer)
    assert f"goals reached: {rate:.1%} of 100 greedy episodes" in capsys.readouterr().out
    trainer.close()


def test_hindsight_may_be_changed_while_a_trainer_runs():
    trainer = steps(fill(make(HostDevice(), bit_flip(hindsight__strategy="none"))), 3)
    trainer.reconfigure(bit_flip(hindsight__strategy="future"))
    steps(trainer, 2)
    assert "sample_relabelled" in trainer.learn_program.describe()
    trainer.close()


def test_a_change_to_hindsight_that_the_environment_can_not_have_changes_nothing():
    trainer = steps(fill(make(HostDevice(), chain())), 3)
    with pytest.raises(MismatchError, match="hold a goal"):
        trainer.reconfigure(chain(hindsight__strategy="final"))
    assert trainer.config == chain()
    steps(trainer, 2)
    trainer.close()
