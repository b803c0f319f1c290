"""What learning from recorded transitions must do on every device.

Tests over a fixture ``open_device``: `test_offline.py` runs them on the host device,
`tests/gpu/test_offline_cuda.py` on a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline.made import chain_columns, tiny_columns
from trainer.setups import OpenDevice, end_of

from onegraph.kernels.common.layout import Counter, Diagnostic, Flag
from onegraph.stages import exact_sets, format_set
from onegraph.stages.flags import choose_stages
from onegraph.stages.registry import NONE, step_stages
from onegraph.trainer.action_values import q_error
from onegraph.trainer.checkpoint import load_checkpoint, save_checkpoint
from onegraph.trainer.config import Config, load_config
from onegraph.trainer.loop import Loop
from onegraph.trainer.offline import TransitionsError, transitions_from
from onegraph.trainer.trainer import Trainer, TrainerError

#: For rows [N, 2] and two actions, drawn four at a time.
SMALL: dict[str, object] = {
    "env.kind": "recorded",
    "offline.transitions": "rows",
    "network.hidden": [8],
    "learn.batch_size": 4,
    "learn.lr.start": 1e-2,
    "loop.epoch_steps": 16,
    "loop.timed_steps": 2,
}


def recorded(**changes: object) -> Config:
    """A small offline run. Dots in field names are written as two underscores."""
    return load_config(None, SMALL | {n.replace("__", "."): v for n, v in changes.items()})


def from_rows(
    open_device: OpenDevice,
    columns: dict[str, Any],
    config: Config,
    stages: str | frozenset[int] = "all",
) -> Trainer:
    """A trainer that holds those rows."""
    named = choose_stages(stages) if isinstance(stages, str) else None
    chosen, optional = (stages, NONE) if named is None else (named.stages, named.optional)
    rows = transitions_from(columns, "rows")
    return Trainer(config, open_device(), chosen, transitions=rows, optional=optional)


def learned(trainer: Trainer, count: int) -> Trainer:
    for _ in range(count):
        trainer.learn()
    return trainer


def walk(rows: int = 70, *, broken: int = 0) -> dict[str, Any]:
    """Rows of some episodes that end in each way, of which the last `broken` are not finite."""
    at = np.arange(rows)
    columns = tiny_columns(
        rows,
        reward=np.sin(at),
        terminated=at % 11 == 10,
        truncated=at % 13 == 12,
        state=np.stack([np.sin(at), np.cos(at)], axis=1),
        next_state=np.stack([np.sin(at + 1), np.cos(at + 1)], axis=1),
        episode=None,
    )
    if broken:
        columns["reward"][-broken:] = np.nan
    return columns


class OfflineContract:
    def test_the_ring_holds_the_rows_as_inserts_would(self, open_device: OpenDevice) -> None:
        columns = tiny_columns(
            6,
            terminated=np.array([0, 1, 0, 0, 0, 0], bool),
            episode=np.array([3, 3, 1, 1, 1, 2]),
            reward=np.array([1, 2, 3, 4, np.inf, 6.0]),
        )
        trainer = from_rows(open_device, columns, recorded())
        read = trainer.workspace.read
        cut, done, broken = Flag.TRUNCATED, Flag.TERMINATED, Flag.INVALID
        assert read("replay_flags").tolist() == [0, done, 0, 0, cut | broken, cut]
        assert read("replay_episode").tolist() == [0, 0, 1, 1, 1, 2]
        assert read("replay_action").tolist() == [0, 1, 0, 1, 0, 1]
        assert read("replay_reward").tolist() == [1, 2, 3, 4, 0, 6]
        assert read("replay_leaves").tolist() == [1, 1, 1, 1, 0, 1]
        assert read("replay_nodes").tolist() == [5]
        assert read("replay_generation").tolist() == [1] * 6
        assert read("diagnostics")[Diagnostic.INVALID_ROW] == 1
        assert read("replay_state")[:, :3].tolist() == [[i, 10 * i, 0] for i in range(6)]
        counters = read("counters")
        assert (counters[Counter.HEAD], counters[Counter.FILLED]) == (0, 6)
        assert (trainer.rows, trainer.env_steps, trainer.shapes.capacity) == (6, 0, 6)
        trainer.close()

    @pytest.mark.parametrize("stages", ["0", "1", "4", "all"])
    def test_returns_of_several_steps_end_where_the_episode_or_the_set_does(
        self, open_device: OpenDevice, stages: str
    ) -> None:
        """Rewards 1, 2, 4, 8, 16, 32; episodes {0, 1} terminated, {2, 3, 4} cut, {5}; gamma .5."""
        columns = tiny_columns(
            6,
            terminated=np.array([0, 1, 0, 0, 0, 0], bool),
            episode=np.array([0, 0, 1, 1, 1, 2]),
            reward=2.0 ** np.arange(6),
        )
        config = recorded(replay__n_step=3, learn__gamma=0.5, learn__batch_size=6)
        trainer = learned(from_rows(open_device, columns, config, stages), 1)
        read = trainer.workspace.read
        index = trainer.indices()
        assert set(index) == set(range(6)), "a row of each of the equal strata"
        returns = np.array([2.0, 2.0, 4 + 4 + 4, 8 + 8, 16, 32])
        discount = np.array([0.0, 0.0, 0.125, 0.25, 0.5, 0.5])
        first = np.array([0, 0, 5, 5, 5, 6])  # of the bootstrap state; those of row 1 do not count
        np.testing.assert_array_equal(read("r_t"), returns[index])
        np.testing.assert_array_equal(read("discount_t"), discount[index])
        counts = discount[index] > 0
        np.testing.assert_array_equal(read("s_t")[counts, 0], first[index][counts])
        trainer.close()

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"replay__alpha": 0.0, "replay__n_step": 1},
            {"network__head": "c51", "network__c51__atoms": 7, "learn__batch_size": 7},
        ],
        ids=["prioritized", "uniform", "C51"],
    )
    def test_every_set_of_stages_gives_the_bits_of_stage_0(
        self, open_device: OpenDevice, changes: dict[str, object]
    ) -> None:
        config, columns = recorded(**changes), walk(broken=3)
        found = {}
        for stages in exact_sets(step_stages()):
            trainer = from_rows(open_device, columns, config, stages)
            indices = []
            for _ in range(16):
                trainer.learn()
                indices.append(trainer.indices().tobytes())
            found[format_set(stages)] = (indices, end_of(trainer))
            trainer.close()
        reference = found["0"]
        differs = {}
        for name, (indices, end) in found.items():
            wrong = [n for n, bits in reference[1].items() if end.get(n) != bits]
            if wrong or indices != reference[0]:
                differs[name] = wrong or ["indices"]
        assert differs == {}
        assert reference[1]["theta"] != reference[1]["theta_target"]

    @pytest.mark.slow
    def test_the_chain_is_learned_to_its_exact_values(
        self, open_device: OpenDevice, tmp_path: Path
    ) -> None:
        """From walks of another policy, by 1-step returns; the environment is only looked at."""
        changes = {
            "offline.transitions": "rows",
            "offline.learn_steps": 2_000,
            "learn.lr.steps": 2_000,
            "replay.beta_steps": 2_000,
        }
        config = load_config("chain", changes)
        trainer = from_rows(open_device, chain_columns(), config)
        epochs = Loop(trainer, tmp_path).run()
        assert q_error(trainer, trainer.environment) <= 1e-3  # type: ignore[arg-type]
        assert [(e.learn_steps, e.env_steps) for e in epochs] == [(1_000, 0), (2_000, 0)]
        assert epochs[-1].score == -epochs[-1].extra["max_q_error"]
        trainer.close()

    @pytest.mark.parametrize("stages", ["0", "4", "all"])
    def test_half_and_half_is_the_whole(
        self, open_device: OpenDevice, stages: str, tmp_path: Path
    ) -> None:
        config, columns = recorded(), walk()
        straight = learned(from_rows(open_device, columns, config, stages), 16)
        path = tmp_path / "half.safetensors"
        first = learned(from_rows(open_device, columns, config, "all"), 8)
        save_checkpoint(path, first)
        first.close()
        saved = load_checkpoint(path)
        second = from_rows(open_device, columns, saved.config, stages)
        second.restore(saved.state, saved.progress)
        assert end_of(learned(second, 8)) == end_of(straight)
        straight.close()
        second.close()

    def test_a_step_is_one_graph_launch(self, open_device: OpenDevice) -> None:
        trainer = learned(from_rows(open_device, walk(), recorded()), 2)
        assert dict(trainer.learn().by_kind()) == {"graph_launch": 1}
        trainer.close()

    def test_nothing_is_collected(self, open_device: OpenDevice) -> None:
        trainer = from_rows(open_device, walk(), recorded())
        with pytest.raises(TrainerError, match="this run learns from rows alone"):
            trainer.collect()
        trainer.close()

    def test_rows_that_do_not_fit_are_not_halved(self, open_device: OpenDevice) -> None:
        rows = walk(20_000)
        with pytest.raises(TrainerError, match=r"rows: its 20,000 rows of \d+ bytes do not fit"):
            from_rows(open_device, rows, recorded(replay__memory_cap_mb=1))

    def test_another_environment_than_the_recorded_one_is_refused(
        self, open_device: OpenDevice
    ) -> None:
        config = load_config("chain", {"offline.transitions": "rows"})
        with pytest.raises(
            TransitionsError, match=r"its states have 2 columns, and env\.kind = 'ch"
        ):
            from_rows(open_device, walk(), config)
        columns = chain_columns() | {"action": np.full(len(chain_columns()["action"]), 2)}
        with pytest.raises(
            TransitionsError, match=r"it has 3 actions, and env\.kind = 'chain' has"
        ):
            from_rows(open_device, columns, config)

    def test_a_config_changes_within_the_run(self, open_device: OpenDevice) -> None:
        trainer = learned(from_rows(open_device, walk(), recorded()), 2)
        learn = trainer.config.learn.model_copy(update={"batch_size": 8})
        trainer.reconfigure(trainer.config.model_copy(update={"learn": learn}))
        learned(trainer, 2)
        assert trainer.indices().shape == (8,)
        offline = trainer.config.offline.model_copy(update={"learn_steps": 3})
        with pytest.raises(TrainerError, match="the rows that it learns from were loaded"):
            trainer.reconfigure(trainer.config.model_copy(update={"offline": offline}))
        trainer.close()
