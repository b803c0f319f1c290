"""What lanes of gymnasium must do on every device, as tests over a fixture ``open_device``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from trainer.setups import OpenDevice, end_of, fill, gym, make, steps, trajectory

from onegraph.stages import exact_sets, format_set
from onegraph.stages.registry import step_stages
from onegraph.trainer.checkpoint import load_checkpoint, save_checkpoint
from onegraph.trainer.config import Config, override_config
from onegraph.trainer.episodes import EpisodeEvaluator

SETS = [pytest.param(s, id=format_set(s)) for s in exact_sets(step_stages())]

VARIANTS: dict[str, Config] = {
    "same step": gym(),
    "next step": gym(env__vectorization="vector_entry_point"),
    "one lane, uniform": gym(env__lanes=1, replay__alpha=0.0, replay__n_step=1),
    "one-hot": gym(env__id="FrozenLake-v1", env__max_episode_steps=7),
}

#: Environments whose lanes can be saved: what they keep is of different kinds.
SAVED: dict[str, Config] = {
    "CartPole": gym(),
    "CartPole, vector": gym(env__vectorization="vector_entry_point"),
    "Acrobot": gym(env__id="Acrobot-v1", env__max_episode_steps=9),
    "FrozenLake": gym(env__id="FrozenLake-v1", env__kwargs={"map_name": "8x8"}),
    "CliffWalking": gym(env__id="CliffWalking-v1", env__max_episode_steps=9),
}

STEPS = 20


class GymnasiumContract:
    @pytest.mark.slow
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_every_set_of_stages_gives_the_bits_of_stage_0(
        self, open_device: OpenDevice, variant: str
    ) -> None:
        config = VARIANTS[variant]
        reference = trajectory(make(open_device(), config, "0"), STEPS)
        # Or equality would mean little.
        assert len(set(reference.indices)) == STEPS
        assert reference.end["theta"] != reference.end["theta_target"]
        for stages in exact_sets(step_stages())[1:]:
            found = trajectory(make(open_device(), config, stages), STEPS)
            wrong = [n for n, values in reference.end.items() if found.end[n] != values]
            assert (format_set(stages), wrong) == (format_set(stages), [])
            assert found.indices == reference.indices, format_set(stages)

    @pytest.mark.parametrize("stages", SETS)
    def test_a_steady_step_makes_the_calls_of_its_programs_within_their_budgets(
        self, open_device: OpenDevice, stages: frozenset[int]
    ) -> None:
        trainer = make(open_device(), gym(), stages)
        steps(fill(trainer), 2)
        handing = trainer.runners["env_actions"].program
        for timed in (False, True, True, False):
            collected = trainer.collect(timed=timed).counts
            handed = trainer.handover
            assert handed is not None
            for program, counts in (
                (trainer.collect_program, collected),
                (handing, handed.counts),
            ):
                keeps = trainer.runners[program.name].keeps_times
                assert counts == program.calls(timed=timed and keeps)
                trainer.budget(program).check(counts, program, timed=timed)
            # One copy of the actions, and the wait in it: whatever the stages.
            assert handed.counts == {("actions", "dtoh"): 1, ("actions", "sync"): 1}
        trainer.close()

    def test_acting_is_one_launch_and_one_copy(self, open_device: OpenDevice) -> None:
        """As the ledger counts all that is asked of the device between two learning steps."""
        device = open_device()
        trainer = make(device, gym(), "all")
        steps(fill(trainer), 2)
        before = device.ledger.totals.copy()
        for _ in range(30):
            trainer.collect()
        made = device.ledger.totals - before
        by_kind: Counter[str] = Counter()
        for (_, _, kind), n in made.items():
            by_kind[kind] += n
        assert by_kind == Counter(graph_launch=30, dtoh=30, sync=30)
        assert trainer.learn().by_kind() == Counter(graph_launch=1)
        trainer.close()

    def test_the_hosts_memory_is_read_in_the_first_phase_of_collecting_alone(
        self, open_device: OpenDevice
    ) -> None:
        """So that the copy of the actions, which comes after, says that it may be written."""
        trainer = make(open_device(), gym(), "0")
        pinned = {b.name for b in trainer.environment.buffers() if b.space == "pinned"}
        assert len(pinned) == 5
        phases = [p.name for p in trainer.collect_program.phases]
        assert phases == ["receive", "insert", "counters", "act"]
        touching = {
            (program.name, phase)
            for program in (trainer.learn_program, trainer.collect_program)
            for phase, op in program.ops()
            if (op.reads() | op.writes()) & pinned
        }
        assert touching == {("collect", "receive")}
        trainer.close()

    def test_another_config_leaves_the_lanes_where_they_are(self, open_device: OpenDevice) -> None:
        changes: list[dict[str, object]] = [
            {"learn.lr.start": 1e-3},
            {"learn.batch_size": 16},
            {"network.hidden": [8, 8]},
        ]
        ends = []
        for stages in ("0", "6"):  # two hidden layers are stage 7's, which rounds differently
            trainer = steps(fill(make(open_device(), gym(), stages)), 5)
            for change in changes:
                trainer.reconfigure(override_config(trainer.config, change, "the run's config"))
                before, numbers = trainer.rows, trainer.workspace.read("env_episode")
                trainer.collect()
                assert (trainer.workspace.read("env_episode") >= numbers).all()
                assert trainer.rows == min(before + 4, 100)
                steps(trainer, 3)
            ends.append(end_of(trainer))
            trainer.close()
        assert ends[0] == ends[1]

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", SAVED)
    def test_a_run_that_is_saved_goes_on_as_if_it_had_not_been(
        self, open_device: OpenDevice, kind: str, tmp_path: Path
    ) -> None:
        config = SAVED[kind]
        whole = steps(fill(make(open_device(), config, "all")), 24)
        finished = whole.take_finished()
        assert finished is not None
        want = end_of(whole)
        whole.close()
        first = steps(fill(make(open_device(), config, "0")), 11)
        save_checkpoint(tmp_path / "half.safetensors", first)
        first.close()
        saved = load_checkpoint(tmp_path / "half.safetensors")
        second = make(open_device(), config, "all")
        second.restore(saved.state, saved.progress)
        steps(second, 13)
        again = second.take_finished()
        assert again is not None
        np.testing.assert_array_equal(again.returns, finished.returns)
        np.testing.assert_array_equal(again.lengths, finished.lengths)
        found = end_of(second)
        assert [n for n in want if found[n] != want[n]] == []
        second.close()

    def test_an_evaluation_is_the_same_each_time_and_leaves_the_run_alone(
        self, open_device: OpenDevice
    ) -> None:
        one, other = (steps(fill(make(open_device(), gym(), s)), 5) for s in ("all", "0"))
        figures = [
            EpisodeEvaluator(t, t.environment, 7).run()
            for t in (one, one, other)  # type: ignore[arg-type]
        ]
        for again in figures[1:]:
            np.testing.assert_array_equal(again.returns, figures[0].returns)
            assert again.mean_q == figures[0].mean_q
        plain = steps(fill(make(open_device(), gym(), "all")), 5)
        for trainer in (one, plain):
            steps(trainer, 5)
        assert end_of(one) == end_of(plain)
        for trainer in (one, other, plain):
            trainer.close()
