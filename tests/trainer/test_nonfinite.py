"""Steps and rows that are no numbers: what a run says, when it stops, and what it keeps."""

import json
import re

import numpy as np
import pytest
from trainer.contract import broken_chain
from trainer.setups import fill, make, short, steps

from onegraph.kernels.common.layout import COUNTERS, Counter, Flag
from onegraph.kernels.device import HostDevice
from onegraph.trainer import loop as loop_module
from onegraph.trainer.blocks.layout import Group
from onegraph.trainer.checkpoint import load_checkpoint, save_checkpoint
from onegraph.trainer.cli import app as program
from onegraph.trainer.loop import Loop, NonFiniteError
from onegraph.trainer.trainer import LEARNED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning"),
]

#: Four epochs of 16 learning steps after 16 vector steps of filling.
RUN = {"loop__total_env_steps": 64 + 4 * (4 * 16 - 1), "loop__timed_steps": 0}

#: Steps are launched one by one at these, and the tests put things between them. What the device
#: does in a loop of its own is in test_epoch_graph.py.
STAGES = pytest.mark.parametrize("stages", ["0", "1", "4", "6"])


def filled(stages="6", environment=None, **changes):
    return fill(make(HostDevice(), short(**{**RUN, **changes}), stages, environment))


def spoil(trainer, name, values=np.nan):
    """Put NaN into all of a buffer."""
    trainer.workspace.write(name, np.full_like(trainer.workspace.read(name), values))


def learned(trainer):
    return {name: trainer.workspace.read(name) for name in LEARNED}


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def stopped(trainer, folder):
    """The error of a run that stops by itself."""
    with pytest.raises(NonFiniteError) as stop:
        Loop(trainer, folder).run()
    return stop.value


def no_rows(trainer):
    """A `collect` that counts a vector step and inserts nothing."""

    def collect():
        trainer.progress.collects += 1

    return collect


class Planted:
    """A trainer whose learning steps `first` to `last` (from 1) have a NaN target network."""

    def __init__(self, trainer, first, last):
        self.trainer, self.first, self.last = trainer, first, last
        self.learn, self.kept = trainer.learn, None
        trainer.learn = self

    def __call__(self, *, timed=False):
        number, space = self.trainer.progress.learns + 1, self.trainer.workspace
        if number == self.first:
            self.kept = space.read("theta_target")
            spoil(self.trainer, "theta_target")
        if number == self.last + 1 and self.kept is not None:
            space.write("theta_target", self.kept)
        return self.learn(timed=timed)


# ------------------------------------------------------------------------ a step


@STAGES
def test_rewards_spoilt_after_insertion_skip_each_step_and_the_run_is_counted(stages):
    trainer = steps(filled(stages), 3)
    before, rewards = learned(trainer), trainer.workspace.read("replay_reward")
    spoil(trainer, "replay_reward")
    for count in (1, 2, 3):
        trainer.learn()
        seen = trainer.history(1)
        assert (seen["skipped"][0], seen["skipped_in_a_row"][0]) == (count, count)
        assert seen["adam_step"].tolist() == [4]
        assert trainer.latest()[loop_module.RecordField.SKIPPED_IN_A_ROW] == count
        for name, values in before.items():
            np.testing.assert_array_equal(trainer.workspace.read(name), values, err_msg=name)
    assert trainer.nonfinite() == []
    trainer.workspace.write("replay_reward", rewards)
    steps(trainer, 2)
    seen = trainer.history(2)
    assert seen["skipped"].tolist() == [3, 3]
    assert seen["skipped_in_a_row"].tolist() == [0, 0]
    assert seen["adam_step"].tolist() == [4, 5]


@STAGES
@pytest.mark.parametrize("name", ["theta", "theta_target"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_parameters_that_are_no_numbers_skip_each_step(stages, name, bad):
    trainer = steps(filled(stages), 3)
    spoil(trainer, name, bad)
    before = learned(trainer)
    assert trainer.nonfinite() == [name]
    for count in (1, 2):
        trainer.learn()
        trainer.collect()
        assert trainer.history(1)["skipped_in_a_row"].tolist() == [count]
        for each, values in before.items():
            np.testing.assert_array_equal(trainer.workspace.read(each), values, err_msg=each)
    leaves = trainer.workspace.read("replay_leaves")
    assert np.isfinite(leaves).all()
    assert np.isfinite(trainer.workspace.read("replay_reward")).all()


@pytest.mark.parametrize(("before", "after"), [("0", "all"), ("all", "0"), ("all", "4")])
def test_the_run_is_counted_on_after_a_resume(tmp_path, before, after):
    trainer = steps(filled(before), 2)
    spoil(trainer, "theta_target")
    steps(trainer, 5)
    counters = trainer.workspace.read("counters")
    assert counters.shape == (COUNTERS,)
    assert counters[Counter.SKIPPED_IN_A_ROW] == 4  # the fifth is known by its flag
    save_checkpoint(tmp_path / "x", trainer)
    saved = load_checkpoint(tmp_path / "x")
    second = make(HostDevice(), saved.config, after)
    second.restore(saved.state, saved.progress)
    second.learn()
    assert second.history(1)["skipped_in_a_row"].tolist() == [6]


# ------------------------------------------------------------------------ an epoch


@STAGES
def test_an_epoch_says_how_many_steps_were_skipped(tmp_path, capsys, stages):
    trainer = filled(stages)
    Planted(trainer, 15, 18)  # two steps of the first epoch, two of the second
    Loop(trainer, tmp_path).run()
    found = lines(tmp_path)
    assert [x["skipped"] for x in found] == [2, 4, 4, 4]
    assert [x["epoch_skipped"] for x in found] == [2, 2, 0, 0]
    assert [x["skipped_in_a_row"] for x in found] == [2, 4, 0, 0]
    said = capsys.readouterr().err.splitlines()
    assert [re.findall(r" · (\d+ steps skipped, \d+ in a row)", line) for line in said] == [
        ["2 steps skipped, 2 in a row"],
        ["2 steps skipped, 4 in a row"],
        [],
        [],
    ]


@STAGES
def test_an_epoch_says_how_many_rows_were_invalid(tmp_path, capsys, stages):
    config = short(**RUN)
    trainer = make(HostDevice(), config, stages, broken_chain(config))
    Loop(trainer, tmp_path).run()
    found = lines(tmp_path)
    totals = [x["invalid_rows"] for x in found]
    assert 0 < totals[0] < totals[-1]
    assert [x["epoch_invalid_rows"] for x in found] == np.diff([0, *totals]).tolist()
    assert [x["skipped"] for x in found] == [0] * 4
    said = capsys.readouterr().err
    for line in found:
        if line["epoch_invalid_rows"]:
            assert f" · {line['epoch_invalid_rows']} rows invalid" in said
    flags, leaves = (trainer.workspace.read(n) for n in ("replay_flags", "replay_leaves"))
    assert not leaves[(flags & Flag.INVALID) != 0].any()


def test_rows_are_those_of_the_epoch_after_a_resume_too(tmp_path):
    config = short(**RUN)

    def begun():
        return make(HostDevice(), config, "all", broken_chain(config))

    Loop(begun(), tmp_path / "straight").run()
    asked = iter(range(1000))
    with pytest.raises(loop_module.InterruptedRunError):
        Loop(begun(), tmp_path / "halves", stop=lambda: next(asked) >= 40).run()
    saved, second = load_checkpoint(tmp_path / "halves"), begun()
    second.restore(saved.state, saved.progress)
    Loop(second, tmp_path / "halves").run()
    straight, halves = (
        [(x["epoch_invalid_rows"], x["epoch_skipped"]) for x in lines(tmp_path / name)]
        for name in ("straight", "halves")
    )
    assert halves == straight


# ------------------------------------------------------------------------ stopping


@STAGES
def test_a_run_stops_after_so_many_steps_and_keeps_the_last_good_state(tmp_path, stages):
    trainer = filled(stages, loop__nonfinite_limit=20)
    learn, good = trainer.learn, {}

    def spoilt(*, timed=False):
        if trainer.progress.learns == 5:
            good.update(learned(trainer))
            spoil(trainer, "replay_reward")
            trainer.collect = no_rows(trainer)  # rows that are good would take their place
        return learn(timed=timed)

    trainer.learn = spoilt
    stop = stopped(trainer, tmp_path)
    # The limit falls within the second epoch; the check is at its end.
    assert (stop.step, stop.checkpoint) == (32, tmp_path / "checkpoints" / "last.safetensors")
    saved = load_checkpoint(stop.checkpoint)
    assert saved.progress.learns == 32
    for name, values in good.items():
        np.testing.assert_array_equal(saved.state[name], values, err_msg=name)
    assert str(stop) == (
        "learning step 32: 27 steps in a row were skipped, for gradients that were NaN or infinite"
        " (loop.nonfinite_limit = 20); in the last batch r_t holds NaN or infinity: look for what"
        " wrote them to the replay; skipped steps change no parameters: those of step 5, the last"
        f" good ones, are in {stop.checkpoint}"
    )
    assert [x["skipped_in_a_row"] for x in lines(tmp_path)] == [11, 27]


@pytest.mark.parametrize(
    ("first", "last", "limit", "stops"),
    [
        (3, 5, 3, True),  # over within the epoch, and all the same three in a row
        (3, 5, 4, False),
        (15, 18, 4, True),  # two in each of two epochs
        (15, 18, 5, False),
        (3, 40, 0, False),  # never
        (3, 40, 38, True),
        (3, 40, 39, False),
    ],
)
def test_a_run_stops_at_the_limit_and_not_below(tmp_path, first, last, limit, stops):
    trainer = filled(loop__nonfinite_limit=limit)
    Planted(trainer, first, last)
    if stops:
        stop = stopped(trainer, tmp_path)
        assert f": {last - first + 1} steps in a row were skipped" in str(stop)
        assert stop.step == last
        assert trainer.progress.learns == -(-last // 16) * 16  # the end of that epoch
        assert f"those of step {trainer.progress.learns}, the last good ones" in str(stop)
    else:
        Loop(trainer, tmp_path).run()
        assert trainer.progress.epoch == 4


@pytest.mark.parametrize("stages", ["0", "6"])
def test_a_long_epoch_is_not_waited_for(tmp_path, monkeypatch, stages):
    monkeypatch.setattr(loop_module, "DISPLAY_EVERY", 8)
    trainer = filled(
        stages,
        loop__nonfinite_limit=10,
        loop__epoch_steps=1000,
        loop__total_env_steps=4_000,
    )
    trainer = fill(trainer)
    Planted(trainer, 20, 10**6)
    assert stopped(trainer, tmp_path).step == 32  # the first look at 10 or more
    assert not (tmp_path / "metrics.jsonl").exists()


def test_looking_costs_no_device_call(tmp_path, monkeypatch):
    """Steps make the calls of their program, whether the check is on or off, and however often."""
    counts = {}
    for limit, every in ((0, 64), (50, 1)):
        monkeypatch.setattr(loop_module, "DISPLAY_EVERY", every)
        trainer = filled(loop__nonfinite_limit=limit)
        Loop(trainer, tmp_path / str(limit)).run()
        counts[limit] = dict(trainer.device.ledger.totals)
    assert counts[0] == counts[50]


def test_a_resumed_run_has_as_many_steps_anew(tmp_path):
    trainer = filled(loop__nonfinite_limit=20, loop__total_env_steps=1_000)
    spoil(trainer, "replay_reward")
    trainer.collect = no_rows(trainer)
    first = stopped(trainer, tmp_path)
    assert first.step == 32
    saved = load_checkpoint(tmp_path)
    second = make(HostDevice(), saved.config, "6")
    second.restore(saved.state, saved.progress)
    second.collect = no_rows(second)
    again = stopped(second, tmp_path)
    assert again.step == 64  # at step 48 the run is of 48, of which 16 are its own
    assert ": 64 steps in a row were skipped" in str(again)
    assert "those of step 0, the last good ones" in str(again)


def test_a_state_that_is_not_finite_never_replaces_one_that_is(tmp_path):
    trainer = filled(loop__nonfinite_limit=20)
    Planted(trainer, 20, 10**6)
    stop = stopped(trainer, tmp_path)
    # Epoch 1 ends at step 16 with a checkpoint; 2 ends at 32 with 13 skipped, 3 at 48 with 29.
    assert stop.step == 48
    assert stop.checkpoint is not None
    saved = load_checkpoint(stop.checkpoint)
    assert saved.progress.learns == 16
    assert all(np.isfinite(saved.state[name]).all() for name in LEARNED)
    assert "theta_target holds NaN or infinity; go on from a good state (--resume)" in str(stop)
    assert f"the last good state is in {stop.checkpoint}" in str(stop)


def test_a_run_that_never_had_a_good_state_says_so(tmp_path):
    trainer = filled(loop__nonfinite_limit=5)
    spoil(trainer, "theta")
    stop = stopped(trainer, tmp_path)
    assert stop.checkpoint is None
    assert "theta holds NaN or infinity" in str(stop)
    assert str(stop).endswith("no checkpoint has a good state")


def test_values_that_overflow_are_named_as_such(tmp_path):
    trainer = filled(loop__nonfinite_limit=5, learn__loss="mse")
    spoil(trainer, "theta", 1e18)  # values of 1e37: a hidden output times a TD error is too much
    message = str(stopped(trainer, tmp_path))
    assert "lower learn.lr.start, set learn.max_grad_norm, or scale the rewards down" in message


def test_the_command_ends_with_1_and_one_line(tmp_path, capsys, monkeypatch):
    learn = loop_module.Trainer.learn

    def spoilt(self, *, timed=False):
        if self.progress.learns == 20:
            spoil(self, "theta_target")
        return learn(self, timed=timed)

    monkeypatch.setattr(loop_module.Trainer, "learn", spoilt)
    arguments = {
        "env.lanes": 4,
        "replay.capacity": 100,
        "learn.batch_size": 32,
        "network.hidden": "[16]",
        "loop.start_steps": 64,
        "loop.epoch_steps": 16,
        "loop.timed_steps": 4,
        "loop.total_env_steps": 1000,
        "loop.nonfinite_limit": 10,
    }
    given = [part for name, value in arguments.items() for part in ("--set", f"{name}={value}")]
    run = ["train", "--config", "chain", "--device", "host", "--stages", "6"]
    run += ["--run-dir", str(tmp_path / "run")]
    assert program.run([*run, *given]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("onegraph: error: learning step 32: 12 steps in a row were skipped")
    assert "(loop.nonfinite_limit = 10)" in last
    # From the checkpoint that it names, the run goes on to its end.
    monkeypatch.undo()
    assert program.run(["train", "--resume", str(tmp_path / "run"), "--device", "host"]) == 0
    assert [x["epoch"] for x in lines(tmp_path / "run")][-1] > 3


# ------------------------------------------------------------------------ the full learner


def kept(trainer):
    """What a skipped step must leave: what learns, and what is averaged beside it."""
    names = {b.name for b in trainer.learn_program.buffers if b.persistent and b.dtype != "u8"}
    outside = {"counters", "schedule", "history", "diagnostics", "skip", "spectral_vectors"}
    return {
        name: trainer.workspace.read(name)
        for name in names - outside
        if not name.startswith(("replay_", "env_"))
    }


@pytest.fixture(scope="module")
def full():
    config = short(preset="full", network__hidden=[32])
    trainer = steps(fill(make(HostDevice(), config, "all")), 4)
    assert trainer.history(4)["skipped"].tolist() == [0] * 4
    return trainer


@pytest.mark.parametrize("group", list(Group))
def test_a_nan_in_any_group_skips_the_whole_step(full, group):
    """One optimiser step: a component that is no number stops the others with it."""
    start, stop = full.network.layout.range_of(group)
    theta = full.workspace.read("theta")
    broken = theta.copy()
    broken[start + (stop - start) // 2] = np.nan
    full.workspace.write("theta", broken)
    before, skipped = kept(full), full.history(1)["skipped"][0]
    full.learn()
    for name, values in before.items():
        np.testing.assert_array_equal(full.workspace.read(name), values, err_msg=name)
    assert np.isfinite(full.workspace.read("spectral_vectors")).all()
    assert full.history(1)["skipped"].tolist() == [skipped + 1]
    full.workspace.write("theta", theta)
    full.learn()
    assert full.history(1)["skipped"].tolist() == [skipped + 1]
    assert full.nonfinite() == []


def test_rewards_spoilt_after_insertion_skip_the_full_learners_steps(full):
    rewards, before = full.workspace.read("replay_reward"), kept(full)
    spoil(full, "replay_reward")
    full.learn()
    for name, values in before.items():
        np.testing.assert_array_equal(full.workspace.read(name), values, err_msg=name)
    assert full.history(1)["skipped_in_a_row"].tolist() == [1]
    full.workspace.write("replay_reward", rewards)
    full.learn()
    assert full.history(1)["skipped_in_a_row"].tolist() == [0]
