"""A run that is saved and goes on is the run that never stopped."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from trainer.contract import FOUR_SETS
from trainer.setups import (
    chain,
    end_of,
    fill,
    full,
    full_market,
    make,
    market,
    short,
    small,
    steps,
)

from onegraph.kernels.device import HostDevice
from onegraph.stages import format_set, valid_sets
from onegraph.trainer import checkpoint as module
from onegraph.trainer.checkpoint import (
    CHECKSUM,
    FIRST_FORMAT,
    FORMAT,
    CheckpointError,
    checked_progress,
    load_checkpoint,
    save_checkpoint,
)
from onegraph.trainer.trainer import Trainer, TrainerError

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

SETS = [pytest.param(s, id=format_set(s)) for s in valid_sets()]
SMALL_RUNS = {"short": short(), "uniform": short(replay__alpha=0.0)}
#: One of each way of doing things is enough for what no stage rewrites.
FULL_RUNS = {
    **{f"full at {stages}": (stages, full()) for stages in FOUR_SETS},
    "noisy C51": ("all", full(network__head="c51", network__noisy=True)),
    "full, market": ("all", full_market()),
}


def resumed(path, config, stages="all"):
    saved = load_checkpoint(path)
    trainer = make(HostDevice(), config, stages)
    trainer.restore(saved.state, saved.progress)
    return trainer


@pytest.mark.parametrize("stages", SETS)
@pytest.mark.parametrize("config", SMALL_RUNS.values(), ids=SMALL_RUNS)
def test_half_and_half_is_the_whole(tmp_path, stages, config):
    half_and_half(tmp_path, stages, config)


@pytest.mark.parametrize(("stages", "config"), FULL_RUNS.values(), ids=FULL_RUNS)
def test_half_and_half_is_the_whole_of_the_full_learner(tmp_path, stages, config):
    half_and_half(tmp_path, stages, config)


def half_and_half(tmp_path, stages, config):
    """A run that is saved and loaded half way, beside one that is not."""
    straight = steps(fill(make(HostDevice(), config, stages)), 16)
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, steps(fill(make(HostDevice(), config, stages)), 8))
    second = resumed(path, config, stages)
    save_checkpoint(tmp_path / "again.safetensors", second)
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    steps(second, 8)
    assert end_of(second) == end_of(straight)
    assert second.progress == straight.progress
    for name, trainer in (("a", straight), ("b", second)):
        save_checkpoint(tmp_path / name, trainer)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_saving_between_the_replays_filling_and_the_first_step_is_no_loss(tmp_path):
    config = short()
    straight = make(HostDevice(), config)
    first = make(HostDevice(), config)
    for trainer in (straight, first):
        for _ in range(5):
            trainer.collect()
    save_checkpoint(tmp_path / "x", first)
    second = resumed(tmp_path / "x", config)
    for trainer in (straight, second):
        steps(fill(trainer), 3)
    assert end_of(second) == end_of(straight)


@pytest.mark.parametrize("stages", ["0", "all"])
@pytest.mark.parametrize("alpha", [0.6, 0.0])
def test_a_trainer_that_has_stepped_takes_up_an_earlier_state(stages, alpha):
    config = short(replay__alpha=alpha)
    trainer = make(HostDevice(), config, stages)
    for _ in range(10):
        trainer.collect()
    state, progress = trainer.state(), trainer.progress
    saved = type(progress)(**vars(progress))
    steps(trainer, 12)
    fresh = make(HostDevice(), config, stages)
    for again in (trainer, fresh):
        again.restore(state, type(saved)(**vars(saved)))
        steps(again, 12)
    assert end_of(trainer) == end_of(fresh)


def test_a_skipped_step_is_remembered(tmp_path):
    """The step after it uses its t, also when a save lies between the two."""
    config = short(network__dueling=False)
    trainer = steps(fill(make(HostDevice(), config)), 3)
    target = trainer.workspace.read("theta_target")
    trainer.workspace.write("theta_target", np.full_like(target, np.nan))
    trainer.learn()
    trainer.workspace.write("theta_target", target)
    save_checkpoint(tmp_path / "x", trainer)
    second = resumed(tmp_path / "x", config, "0")
    for t in (trainer, second):
        steps(t, 1)
        assert t.history(1)["skipped"].tolist() == [1]
        assert t.history(1)["adam_step"].tolist() == [4]
    np.testing.assert_array_equal(trainer.parameters(), second.parameters())


def test_a_halved_replay_is_saved_with_the_capacity_it_had(tmp_path):
    config = chain(replay__capacity=4_000)
    trainer = Trainer(config, HostDevice(memory_bytes=250_000), frozenset(range(1, 7)))
    assert trainer.shapes.capacity < 4_000
    save_checkpoint(tmp_path / "x", steps(fill(trainer), 2))
    saved = load_checkpoint(tmp_path / "x")
    assert saved.config.replay.capacity == trainer.shapes.capacity
    second = resumed(tmp_path / "x", saved.config)  # where memory is plentiful
    for t in (trainer, second):
        steps(t, 5)
    assert end_of(trainer) == end_of(second)


# ------------------------------------------------------------------------ what can't be used


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "checkpoints" / "last.safetensors"
    save_checkpoint(path, steps(fill(make(HostDevice(), short())), 2))
    return path


def refusal(path):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


def test_a_run_folder_names_its_last_checkpoint(saved):
    assert load_checkpoint(saved.parent.parent).path == saved


def test_a_missing_one_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.safetensors: there is no such checkpoint"):
        load_checkpoint(tmp_path / "none.safetensors")
    with pytest.raises(CheckpointError, match=r"last\.safetensors: there is no such checkpoint"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_one_is_refused(saved, part):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(len(whole) * part)])
    assert "this is no whole checkpoint" in refusal(saved)


def test_a_foreign_file_is_refused(saved):
    saved.write_bytes(b"PK\x03\x04 something else entirely")
    assert "this is no whole checkpoint" in refusal(saved)
    save_file({"x": np.zeros(3)}, saved, metadata={"format": "pt"})
    assert "it was not written by this version" in refusal(saved)
    save_file({"x": np.zeros(3)}, saved)
    assert "it was not written by this version" in refusal(saved)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("{", "this is no whole checkpoint"),
        ("[]", "this is no whole checkpoint"),
        ("{}", "this is no whole checkpoint"),
        (json.dumps({"config": {}, "progress": {"steps": 1}}), "this is no whole checkpoint"),
        (json.dumps({"config": {"seed": -1}, "progress": {}}), "its config can't be used"),
    ],
)
def test_damaged_metadata_is_refused(saved, about, message):
    save_file({"x": np.zeros(3)}, saved, metadata={FIRST_FORMAT: about})
    assert message in refusal(saved)
    save_file({"x": np.zeros(3)}, saved, metadata={FORMAT: about})
    assert "this is no whole checkpoint" in refusal(saved)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            short(network__hidden=[8]),
            r"the checkpoint's adam_m is \[200\] float32, this network and replay need \[104\]",
        ),
        (short(replay__capacity=200), r"the checkpoint's replay_action is \[100\] int32, this"),
        (short(env__lanes=5), r"the checkpoint's env_lane_episode is \[4\] int64, this"),
        (market(), r"the checkpoint's adam_m is"),
    ],
    ids=["network", "capacity", "lanes", "market"],
)
def test_a_state_of_another_network_or_replay_is_refused(saved, other, message):
    trainer = fill(make(HostDevice(), other))
    before = trainer.state()
    loaded = load_checkpoint(saved)
    with pytest.raises(TrainerError, match=message):
        trainer.restore(loaded.state, loaded.progress)
    for name, values in trainer.state().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)


def test_a_state_of_another_learner_is_refused(saved):
    loaded = load_checkpoint(saved)
    trainer = make(HostDevice(), short(network__head="iqn", network__spectral_cap=1.0))
    with pytest.raises(TrainerError, match=r"the checkpoint's adam_m is .* use the config that"):
        trainer.restore(loaded.state, loaded.progress)
    # Of equal size, it lacks what the spectral norm keeps.
    trainer = make(HostDevice(), short(network__spectral_cap=1.0))
    with pytest.raises(TrainerError, match="has no 'spectral_vectors'; it is of another kind"):
        trainer.restore(loaded.state, loaded.progress)


def test_a_state_of_another_kind_of_run_is_refused(saved):
    loaded = load_checkpoint(saved)
    del loaded.state["env_lane_state"]
    with pytest.raises(TrainerError, match="has no 'env_lane_state'; it is of another kind of run"):
        make(HostDevice(), short()).restore(loaded.state, loaded.progress)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A folder with a checkpoint and the one before it, and the bytes of the newer one."""
    folder = tmp_path_factory.mktemp("pair") / "checkpoints"
    trainer = steps(fill(make(HostDevice(), small())), 2)
    last, before = folder / "last.safetensors", folder / "last-1.safetensors"
    save_checkpoint(last, trainer)
    save_checkpoint(last, steps(trainer, 1), previous=before)
    return last, before, last.read_bytes()


def is_refused(pair, content):
    """It is refused, by its name, and the one before it is named."""
    last, before, _ = pair
    last.write_bytes(content)
    message = refusal(last)
    assert message.endswith(
        f"; use {before} instead (--resume {before}), of epoch 0 and learning step 2"
    )
    with pytest.raises(CheckpointError):
        checked_progress(last)


often = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@often
@given(data=st.data())
def test_any_changed_byte_is_noticed(pair, data):
    whole = pair[2]
    header = 8 + int.from_bytes(whole[:8], "little")
    # The header is where a change could be taken for something else: half of the tries.
    at = data.draw(st.integers(0, header - 1) | st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    is_refused(pair, bytes(changed))


@often
@given(data=st.data())
def test_any_cut_is_noticed(pair, data):
    whole = pair[2]
    is_refused(pair, whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("more", [b"\0", b"\0" * 4096, b"{}"])
def test_bytes_after_the_end_are_noticed(pair, more):
    is_refused(pair, pair[2] + more)


def test_a_change_that_makes_it_look_older_is_noticed(pair):
    """An older format has no checksum: it must not be a way around it."""
    changed = pair[2].replace(FORMAT.encode(), FIRST_FORMAT.encode())
    is_refused(pair, changed.replace(b"0.9", b"0.8"))


def test_the_checksum_is_over_the_file_with_zeros_in_its_place(pair):
    """As anyone can compute it."""
    pair[0].write_bytes(pair[2])
    with safe_open(pair[0], framework="numpy") as file:
        said = json.loads(file.metadata()[FORMAT])[CHECKSUM]
    zeroed = pair[2].replace(said.encode(), b"0" * 64)
    assert hashlib.blake2b(zeroed, digest_size=32).hexdigest() == said


def test_a_changed_one_without_another_says_so(saved):
    saved.write_bytes(saved.read_bytes()[:-1] + b"x")
    assert refusal(saved).endswith("no other checkpoint beside it is whole: start anew")


def test_a_damaged_one_before_is_not_offered(pair, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(pair[0].parent, folder)
    (folder / "last.safetensors").unlink()
    (folder / "last-1.safetensors").write_bytes(b"no")
    (folder / "best.safetensors").write_bytes(pair[2])
    message = refusal(folder / "last.safetensors")
    assert "there is no such checkpoint; use " in message
    assert f"--resume {folder / 'best.safetensors'}), of epoch 0 and learning step 3" in message


def test_a_run_that_ended_before_its_first_checkpoint_says_how_to_start_anew(tmp_path):
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert str(caught.value).endswith(
        "there is no such checkpoint; the run ended before its first one, so there is nothing to go"
        f" on from; start it anew (onegraph train --config {tmp_path}/config.toml --run-dir"
        f" {tmp_path})"
    )


def as_first_format(path):
    """The checkpoint as the first version of the format was written."""
    with safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()[FORMAT])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del about[CHECKSUM]
    save_file(state, path, metadata={FIRST_FORMAT: json.dumps(about)})


def test_one_of_the_first_format_is_read_with_a_note(saved):
    new = load_checkpoint(saved)
    as_first_format(saved)
    old = load_checkpoint(saved)
    assert (old.config, old.progress) == (new.config, new.progress)
    for name, values in new.state.items():
        np.testing.assert_array_equal(old.state[name], values, err_msg=name)
    assert (new.note, old.note) == ("", "was written by an earlier version, and has no checksum")


# ------------------------------------------------------------------------ writing


def test_the_one_before_is_kept_when_asked_for(tmp_path):
    last, before = tmp_path / "last", tmp_path / "before"
    trainer = fill(make(HostDevice(), small()))
    written = []
    for _ in range(3):
        save_checkpoint(last, steps(trainer, 1), previous=before)
        written.append(last.read_bytes())
    assert (before.read_bytes(), last.read_bytes()) == (written[1], written[2])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["before", "last"]


def test_where_files_have_one_name_the_one_before_is_a_copy(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    test_the_one_before_is_kept_when_asked_for(tmp_path)


@pytest.mark.parametrize("number", [28, 5])
def test_a_save_that_can_not_keep_the_one_before_changes_nothing(saved, monkeypatch, number):
    def refused(*_):
        raise OSError(number, "planted")

    monkeypatch.setattr("os.link", refused)
    before = saved.read_bytes()
    with pytest.raises(CheckpointError, match="planted"):
        save_checkpoint(saved, make(HostDevice(), short()), previous=saved.with_name("before"))
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), module.SafetensorError])
def test_a_save_that_fails_half_way_leaves_the_old_file(saved, monkeypatch, error):
    before = saved.read_bytes()

    def half(tensors, path, metadata):
        path.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(module, "save_file", half)
    with pytest.raises(CheckpointError, match="the checkpoint could not be written"):
        save_checkpoint(saved, make(HostDevice(), short()))
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_save_that_is_interrupted_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def interrupted(file):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(saved, make(HostDevice(), short()))
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_save_puts_a_new_file_in_the_place_of_the_old(saved):
    """Who has the old one open keeps it whole."""
    before = saved.read_bytes()
    with saved.open("rb") as old:
        save_checkpoint(saved, make(HostDevice(), short()))
        assert old.read() == before
    assert saved.read_bytes() != before


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="could not be written"):
        save_checkpoint(tmp_path / "file" / "x.safetensors", make(HostDevice(), short()))
