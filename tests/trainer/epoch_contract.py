"""What a loop of rounds on the device must be, as tests over a fixture ``open_device``.

`test_epoch_graph.py` runs them on the host device, `tests/gpu/test_epoch_graph.py` on a GPU.
"""

from __future__ import annotations

import json
from collections import Counter as Count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer.setups import OpenDevice, bit_flip, end_of, fill, full, make, market, short

from onegraph.kernels.common.layout import Counter, LoopEnding
from onegraph.kernels.device import Device
from onegraph.stages.program import GraphLaunch, WhileGraph
from onegraph.stages.runner import Runner
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.config import Config
from onegraph.trainer.loop import InterruptedRunError, Loop, NonFiniteError
from onegraph.trainer.trainer import LEARNED, Trainer, TrainerError

#: Steps are launched one by one at the first, and by the device's loop at the second.
STEPWISE, LOOPED = "6", "all"

#: Three epochs of 16 learning steps, less the last two; four steps of each are timed.
RUN: dict[str, object] = {
    "loop__total_env_steps": 64 + 4 * (3 * 16 - 1 - 2),
    "loop__timed_steps": 4,
    "loop__start_steps": 64,
    "loop__epoch_steps": 16,
}

#: Where a run's own text lies: what depends on the clock or names the stages.
OWN = ("seconds", "step_ms", "phases", "stages")

CONFIGS: dict[str, Config] = {
    "chain": short(**RUN),
    "market": market(**RUN, replay__capacity=100),
    "bit flip": bit_flip(**RUN),
    "full": full(**RUN),
    "no timed steps": short(**RUN | {"loop__timed_steps": 0}),
    "every step timed": short(**RUN | {"loop__timed_steps": 16}),
    "two steps, then five": short(
        **RUN
        | {
            "loop__learn_every": 2,
            "loop__learns_per_collect": 5,
            "loop__epoch_steps": 24,
            "loop__total_env_steps": 64 + 4 * 27,
        }
    ),
    "three steps, then one": short(
        **RUN | {"loop__learn_every": 3, "loop__total_env_steps": 64 + 4 * 101 + 1}
    ),
    "steps that are no multiple": short(**RUN | {"loop__total_env_steps": 64 + 4 * 37 + 3}),
    "filling begins within a batch": short(**RUN | {"loop__start_steps": 70}),
}


def figures(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "metrics.jsonl").read_text()
    return [
        {k: v for k, v in json.loads(line).items() if k not in OWN} for line in text.splitlines()
    ]


def spoil(trainer: Trainer, name: str) -> None:
    values = trainer.workspace.read(name)
    trainer.workspace.write(name, np.full_like(values, np.nan))


def run(device: Device, config: Config, stages: str, folder: Path) -> tuple[dict[str, bytes], Any]:
    """What a whole run ends with, and what it logged."""
    trainer = make(device, config, stages)
    Loop(trainer, folder).run()
    found = end_of(trainer), (figures(folder), trainer.progress)
    trainer.close()
    return found


class EpochGraphContract:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", CONFIGS)
    def test_a_run_of_several_epochs_keeps_every_bit(
        self, open_device: OpenDevice, tmp_path: Path, name: str
    ) -> None:
        """State, replay, lanes, schedules, history, record and what each epoch logged."""
        stepwise, logged = run(open_device(), CONFIGS[name], STEPWISE, tmp_path / "stepwise")
        looped, logged_too = run(open_device(), CONFIGS[name], LOOPED, tmp_path / "looped")
        assert [n for n in stepwise if stepwise[n] != looped[n]] == []
        assert logged_too == logged
        assert len(logged[0]) >= 2

    @pytest.mark.parametrize("config", [short(), market(), full()], ids=["chain", "market", "full"])
    def test_rounds_are_one_graph_launch_however_many_they_are(
        self, open_device: OpenDevice, config: Config
    ) -> None:
        device = open_device()
        trainer = fill(make(device, config, LOOPED))
        program = trainer.epoch_program
        assert program is not None
        trainer.take_rounds(2)  # captures
        allowed = trainer.budget(program)
        allowed.check(program.calls(), program)
        for count in (1, 7, 30):
            before = trainer.progress.learns, trainer.progress.collects
            taken = trainer.take_rounds(count)
            assert taken.calls.by_kind() == Count(graph_launch=1)
            assert taken.calls.counts == program.calls()
            allowed.check(taken.calls.counts, program)
            assert taken.ending is LoopEnding.REACHED
            assert (taken.learns, taken.collects) == (before[0] + count, before[1] + count)
        counters = trainer.workspace.read("counters")
        assert counters[Counter.RNG] == trainer.progress.learns
        assert counters[Counter.COLLECT] == trainer.progress.collects
        trainer.close()

    def test_the_first_launch_takes_its_rounds_too(self, open_device: OpenDevice) -> None:
        """One turn outside the graph, which loads and plans, and the others in it."""
        config = short(loop__learn_every=2, loop__learns_per_collect=3)
        one, many = (fill(make(open_device(), config, LOOPED)) for _ in range(2))
        for _ in range(5):
            one.take_rounds(1)
        many.take_rounds(5)
        assert end_of(one) == end_of(many)
        assert (many.progress.learns, many.progress.collects) == (15, 16 + 10)
        one.close()
        many.close()

    def test_steps_and_rounds_may_alternate(self, open_device: OpenDevice) -> None:
        stepwise, mixed = (fill(make(open_device(), short(), s)) for s in (STEPWISE, LOOPED))
        for _ in range(12):
            stepwise.collect()
            stepwise.learn()
        mixed.collect()
        mixed.learn(timed=True)
        mixed.take_rounds(4)
        for timed in (False, True):
            mixed.collect(timed=timed)
            mixed.learn(timed=timed)
        mixed.take_rounds(5)
        assert end_of(mixed) == end_of(stepwise)
        assert mixed.timings().steps == (0, 2)
        stepwise.close()
        mixed.close()

    @pytest.mark.slow
    @pytest.mark.parametrize("learns", [3, 17, 29])
    def test_a_loop_that_is_stopped_says_where_and_goes_on_to_the_bit(
        self, open_device: OpenDevice, tmp_path: Path, learns: int
    ) -> None:
        config = short(**RUN | {"loop__timed_steps": 1})
        straight, logged = run(open_device(), config, LOOPED, tmp_path / "straight")
        first = make(open_device(), config, LOOPED)

        def stop() -> bool:
            return first.seen_learns >= learns

        with pytest.raises(InterruptedRunError) as stopped:
            Loop(first, tmp_path / "halves", stop=stop).run()
        saved = load_checkpoint(stopped.value.checkpoint)
        counters = saved.state["counters"]
        assert learns <= saved.progress.learns < 46
        assert saved.progress.learns == counters[Counter.RNG]
        assert saved.progress.collects == counters[Counter.COLLECT]
        first.close()
        second = make(open_device(), config, LOOPED)
        second.restore(saved.state, saved.progress)
        Loop(second, tmp_path / "halves").run()
        assert [n for n, values in end_of(second).items() if values != straight[n]] == []
        assert (figures(tmp_path / "halves"), second.progress) == logged
        second.close()

    def test_an_error_of_the_host_ends_the_loop(self, open_device: OpenDevice) -> None:
        trainer = fill(make(open_device(), short(), LOOPED))
        trainer.take_rounds(1)

        def look() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trainer.take_rounds(10**9, look=look)
        counters = trainer.workspace.read("counters")
        assert trainer.progress.learns == counters[Counter.RNG] >= 1
        assert trainer.progress.collects == counters[Counter.COLLECT]
        assert trainer.take_rounds(3).ending is LoopEnding.REACHED  # it goes on from there
        assert end_of(trainer)["counters"] != counters.tobytes()
        trainer.close()

    @pytest.mark.slow
    def test_a_run_of_skipped_steps_ends_within_the_loop(
        self, open_device: OpenDevice, tmp_path: Path
    ) -> None:
        config = short(
            loop__nonfinite_limit=20, loop__epoch_steps=1000, loop__total_env_steps=10_000
        )
        trainer = fill(make(open_device(), config, LOOPED))
        trainer.take_rounds(5)
        good = {name: trainer.workspace.read(name) for name in LEARNED}
        # No reward that is drawn is a number, and no lane gives others.
        spoil(trainer, "env_table_reward")
        spoil(trainer, "replay_reward")
        with pytest.raises(NonFiniteError) as stop:
            Loop(trainer, tmp_path).run()
        assert stop.value.step == 5 + 20
        assert trainer.progress.learns == 25
        assert ": 20 steps in a row were skipped" in str(stop.value)
        saved = load_checkpoint(tmp_path)
        assert saved.progress.learns == 25
        for name, values in good.items():
            np.testing.assert_array_equal(saved.state[name], values, err_msg=name)
        trainer.close()

    def test_another_config_has_the_loop_captured_anew(self, open_device: OpenDevice) -> None:
        ends = {}
        for stages in (STEPWISE, LOOPED):
            trainer = fill(make(open_device(), short(), stages))

            def rounds(count: int, trainer: Trainer = trainer) -> None:
                if trainer.loops:
                    trainer.take_rounds(count)
                    return
                loop = trainer.config.loop
                for _ in range(count):
                    for _ in range(loop.learn_every):
                        trainer.collect()
                    for _ in range(loop.learns_per_collect):
                        trainer.learn()

            rounds(4)
            runner = trainer.runners.get("epoch")
            # A schedule is data: nothing is captured again.
            trainer.reconfigure(short(learn__lr__start=1e-3))
            assert trainer.runners.get("epoch") is runner
            rounds(3)
            trainer.reconfigure(short(learn__batch_size=24))
            assert (trainer.runners.get("epoch") is runner) == (runner is None)
            rounds(3)
            trainer.reconfigure(short(loop__learn_every=2, network__hidden=[12]))
            rounds(3)
            if isinstance(runner, Runner):
                assert runner.retired
            ends[stages] = end_of(trainer)
            trainer.close()
        assert ends[STEPWISE] == ends[LOOPED]

    def test_the_graph_has_the_nodes_that_the_program_states(self, open_device: OpenDevice) -> None:
        trainer = fill(make(open_device(), full(), LOOPED))
        trainer.take_rounds(1)
        program = trainer.epoch_program
        assert program is not None
        ((_, loop),) = program.ops()
        assert isinstance(loop, WhileGraph)
        steps = [op for op in loop.turn if isinstance(op, GraphLaunch)]
        assert [op.name for op in steps] == ["collect", "learn"]
        nodes = trainer.runners["epoch"].graph_nodes()
        assert nodes == {"epoch": sum(op.nodes() for op in steps) + 2}
        trainer.close()

    def test_a_batch_that_is_not_there_yet_is_refused(self, open_device: OpenDevice) -> None:
        trainer = make(open_device(), short(), LOOPED)
        with pytest.raises(TrainerError, match="a batch of 32 can't be drawn in a round"):
            trainer.take_rounds(1)
        trainer.close()
