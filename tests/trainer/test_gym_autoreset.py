"""What is stored of lanes that the host resets: rows computed by hand, in both autoreset modes."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from scripted_envs import BOTH, TERMINATED, TRUNCATED, Script
from trainer.setups import gym, make

from onegraph.kernels.common.layout import Counter, Diagnostic, Flag
from onegraph.kernels.device import HostDevice
from onegraph.kernels.replay.nstep_assemble import nstep_assemble
from onegraph.trainer.envs.gym import GymnasiumError, over_vector_environment
from onegraph.trainer.trainer import Trainer

STAGES = ["none", "all"]
T, C, B, X = Flag.TERMINATED, Flag.TRUNCATED, Flag.TERMINATED | Flag.TRUNCATED, Flag.INVALID

#: Lane 0: an episode of one step, one of three that is cut. Lane 1: two steps, both ends at once.
LANES = [[(1, TERMINATED), (3, TRUNCATED)], [(2, BOTH)]]

#: (state, next state, reward, flags, episode) of lane 0 and lane 1, a line a vector step.
SAME_STEP = [
    ((0, 1, 1.25, T, 0), (100, 101, 1.25, 0, 1)),
    ((10, 11, 1.25, 0, 2), (101, 102, 1.5, B, 1)),
    ((11, 12, 1.5, 0, 2), (110, 111, 1.25, 0, 3)),
    ((12, 13, 1.75, C, 2), (111, 112, 1.5, B, 3)),
    ((20, 21, 1.25, T, 4), (120, 121, 1.25, 0, 5)),
    ((30, 31, 1.25, 0, 6), (121, 122, 1.5, B, 5)),
]
NEXT_STEP = [
    ((0, 1, 1.25, T, 0), (100, 101, 1.25, 0, 1)),
    ((1, 10, 0, X, -1), (101, 102, 1.5, B, 1)),
    ((10, 11, 1.25, 0, 2), (102, 110, 0, X, -1)),
    ((11, 12, 1.5, 0, 2), (110, 111, 1.25, 0, 3)),
    ((12, 13, 1.75, C, 2), (111, 112, 1.5, B, 3)),
    ((13, 20, 0, X, -1), (112, 120, 0, X, -1)),
]
MODES = [
    pytest.param(AutoresetMode.SAME_STEP, SAME_STEP, id="same-step"),
    pytest.param(AutoresetMode.NEXT_STEP, NEXT_STEP, id="next-step"),
]


def trainer_of(script: Script, stages: str = "all", **changes: object) -> Trainer:
    environment = script.environment()
    config = gym(env__lanes=environment.lanes, replay__capacity=100, **changes)
    return make(HostDevice(), config, stages, environment)


def rows_of(trainer: Trainer) -> list[tuple]:
    names = ("state", "next_state", "reward", "flags", "episode")
    columns = [trainer.workspace.read(f"replay_{n}") for n in names]
    wide = [c[:, 0] if c.ndim == 2 else c for c in columns]
    rows = list(zip(*(c[: trainer.rows].tolist() for c in wide), strict=True))
    lanes = trainer.shapes.lanes
    return [tuple(rows[i : i + lanes]) for i in range(0, len(rows), lanes)]


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize(("mode", "table"), MODES)
def test_rows_have_final_observations_and_never_a_resets(mode, table, stages):
    trainer = trainer_of(Script(LANES, mode), stages)
    for count in range(1, len(table) + 1):
        trainer.collect()
        assert trainer.rows == 2 * count
        resets = sum(bool(row[3] & X) for line in table[:count] for row in line)
        assert trainer.env_steps == 2 * count - resets
    assert rows_of(trainer) == table
    leaves = trainer.workspace.read("replay_leaves")[: trainer.rows]
    assert leaves.tolist() == [0.0 if row[3] & X else 1.0 for line in table for row in line]
    assert trainer.workspace.read("replay_nodes")[-1] == leaves.sum()
    assert trainer.workspace.read("diagnostics")[Diagnostic.INVALID_ROW] == 0
    trainer.close()


@pytest.mark.parametrize(("mode", "table"), MODES)
def test_returns_stop_at_an_episodes_end_and_only_termination_ends_their_value(mode, table):
    """Three steps, gamma 1/2, by hand from the table's rewards."""
    trainer = trainer_of(Script(LANES, mode))
    for _ in table:
        trainer.collect()
    read = trainer.workspace.read
    index = np.arange(trainer.rows, dtype=np.int32)
    last = np.empty(len(index), np.int32)
    ret, discount = np.empty(len(index), np.float32), np.empty(len(index), np.float32)
    nstep_assemble(
        index=index,
        reward=read("replay_reward"),
        flags=read("replay_flags"),
        counters=read("counters"),
        last=last,
        ret=ret,
        discount=discount,
        n=len(index),
        lanes=2,
        slots=trainer.shapes.slots,
        n_step=3,
        gamma=0.5,
    )
    found = {
        (first, end): (float(r), float(d))
        for (first, end), r, d in zip(
            zip(
                read("replay_state")[index, 0].tolist(),
                read("replay_next_state")[last, 0].tolist(),
                strict=True,
            ),
            ret,
            discount,
            strict=True,
        )
    }
    assert found[0, 1] == (1.25, 0.0)  # terminated after one step
    assert found[10, 13] == (1.25 + 0.75 + 0.4375, 0.125)  # truncated: goes on from 13
    assert found[12, 13] == (1.75, 0.5)
    assert found[100, 102] == (2.0, 0.0)  # both at once: terminated
    if mode == AutoresetMode.NEXT_STEP:
        assert found[1, 10] == (0.0, 0.0)  # the row that only resets
    trainer.close()


def test_a_row_that_only_resets_is_never_drawn():
    trainer = trainer_of(Script([[(1, TERMINATED)], [(2, TRUNCATED)]], AutoresetMode.NEXT_STEP))
    while trainer.rows < 64:
        trainer.collect()
    for _ in range(40):
        trainer.learn()
        flags = trainer.workspace.read("replay_flags")
        assert not (flags[trainer.indices()] & Flag.INVALID).any()
        trainer.collect()
    trainer.close()


@pytest.mark.parametrize(("mode", "table"), MODES)
def test_episodes_are_counted_without_the_steps_that_reset(mode, table):
    trainer = trainer_of(Script(LANES, mode))
    for _ in table:
        trainer.collect()
    finished = trainer.take_finished()
    got = list(zip(finished.lanes, finished.returns, finished.lengths, strict=True))
    want = [(0, 1.25, 1), (1, 2.75, 2), (0, 4.5, 3), (1, 2.75, 2)]
    if mode == AutoresetMode.SAME_STEP:
        want += [(0, 1.25, 1), (1, 2.75, 2)]
    assert got == want
    assert len(trainer.take_finished().returns) == 0
    trainer.close()


def test_actions_are_done_one_collecting_step_after_they_are_chosen():
    """And are those that the row is stored with; the environment counts them from 5."""
    script = Script(LANES, options=(("actions", (3, 5)),))
    envs = script()
    trainer = make(HostDevice(), gym(env__lanes=2), "all", over_vector_environment(envs, seed=0))
    chosen = []
    for _ in range(8):
        chosen.append(trainer.workspace.read("env_action").tolist())
        trainer.collect()
    for lane, env in enumerate(envs.envs):
        assert env.done == [5 + actions[lane] for actions in chosen]
    assert trainer.workspace.read("replay_action")[:16].tolist() == np.ravel(chosen).tolist()
    assert trainer.workspace.read("counters")[Counter.COLLECT] == 8
    assert len({tuple(a) for a in chosen}) > 1
    trainer.close()


def test_observations_that_are_not_finite_make_rows_invalid():
    """The row that leads to one and the row that starts from it; other rows stand."""
    bad = {(0, 1): np.nan, (1, 3): np.inf}
    trainer = trainer_of(Script([[(2, TERMINATED), (3, TRUNCATED)]], options=(("bad", bad),)))
    for _ in range(5):
        trainer.collect()
    flags = trainer.workspace.read("replay_flags")[:5].tolist()
    assert flags == [X, X | T, 0, 0, X | C]
    assert trainer.workspace.read("diagnostics")[Diagnostic.INVALID_ROW] == 3
    trainer.close()


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (AutoresetMode.DISABLED, "Scripted.*autoreset is disabled.*SAME_STEP"),
        (None, r"metadata\['autoreset_mode'\] is None"),
        ("sometimes", "is 'sometimes'"),
    ],
)
def test_lanes_that_nothing_resets_are_refused(mode, words):
    envs = Script(LANES)()
    envs.metadata["autoreset_mode"] = mode
    words = words.replace("Scripted", "SyncVectorEnv")
    with pytest.raises(GymnasiumError, match=words):
        over_vector_environment(envs, seed=0)


class WithoutFinal(gymnasium.vector.VectorWrapper):
    def step(self, actions):
        *rest, infos = self.env.step(actions)
        infos.pop("final_obs", None)
        return *rest, infos


def test_a_final_observation_that_is_missing_is_said():
    envs = WithoutFinal(Script(LANES)())
    trainer = make(HostDevice(), gym(env__lanes=2), "all", over_vector_environment(envs, seed=0))
    with pytest.raises(GymnasiumError, match=r"the episode of lane 0 ended.*no final_obs"):
        trainer.collect()
    trainer.close()
