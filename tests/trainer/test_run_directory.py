"""One process at a time trains in a folder, and what killed ones left there is in nobody's way."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onegraph.trainer.atomic_files import partial_folder
from onegraph.trainer.cli import main
from onegraph.trainer.run_directory import RunBusyError, RunDirectory

SMALL = {
    "env.lanes": 4,
    "replay.capacity": 100,
    "learn.batch_size": 32,
    "network.hidden": "[16]",
    "loop.start_steps": 64,
    "loop.epoch_steps": 16,
    "loop.timed_steps": 0,
    "loop.total_env_steps": 64 + 4 * 31,
}


def train(*arguments, **fields):
    given = SMALL | {name.replace("__", "."): value for name, value in fields.items()}
    sets = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    return main(["train", "--config", "chain", "--device", "host", *sets, *map(str, arguments)])


def resume(*arguments):
    return main(["train", "--device", "host", "--resume", *map(str, arguments)])


def refusal(capsys):
    return capsys.readouterr().err.splitlines()[-1].removeprefix("onegraph: error: ")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEGRAPH_STAGES", raising=False)


HOLD = """
import sys, time
from pathlib import Path
from onegraph.trainer.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).claimed(print):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def held(tmp_path):
    """A folder that another process holds, and that process."""
    folder = tmp_path / "held"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield folder, process
    process.kill()
    process.communicate()


# ------------------------------------------------------------------------ the lock


def test_a_second_process_is_refused_and_told_who_is_there(capsys, held):
    folder, process = held
    before = sorted(folder.iterdir())
    wanted = f"{folder}: process {process.pid} trains in this folder; wait until it ends, stop it"
    for call in (
        RunDirectory(folder).refuse_if_busy,
        RunDirectory(folder).claimed(print).__enter__,
    ):
        with pytest.raises(RunBusyError) as caught:
            call()
        assert str(caught.value).startswith(wanted)
    assert train("--run-dir", folder) == 1
    assert refusal(capsys).startswith(wanted)
    assert resume(folder) == 1
    assert refusal(capsys).startswith(wanted)
    assert main(["demo", "--run-dir", str(folder)]) == 1
    assert refusal(capsys).startswith(wanted)
    assert sorted(folder.iterdir()) == before


def test_a_checkpoint_of_a_folder_in_use_goes_on_elsewhere_only(capsys, held):
    folder, process = held
    assert train("--run-dir", "other") == 0
    Path("other", "checkpoints").rename(folder / "checkpoints")
    last = folder / "checkpoints" / "last.safetensors"
    assert resume(last) == 1
    assert f"process {process.pid} trains in this folder" in refusal(capsys)
    assert resume(last, "--run-dir", "elsewhere") == 0


def test_the_lock_of_a_process_that_is_dead_is_taken_over(held):
    folder, process = held
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert RunDirectory(folder).lock.read_text() == f"{process.pid}\n"
    RunDirectory(folder).refuse_if_busy()
    with RunDirectory(folder).claimed(print):
        assert RunDirectory(folder).lock.read_text() == f"{os.getpid()}\n"


def test_a_lock_of_anything_else_is_no_hindrance(tmp_path):
    """A longer number, and text, as of a process that was killed while it wrote."""
    for left in ("99999999999999", "no number", ""):
        (tmp_path / ".lock").write_text(left)
        with RunDirectory(tmp_path).claimed(print):
            assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_that_its_holder_just_removed_is_made_anew(tmp_path, monkeypatch):
    """Between opening and locking it: or two would hold two files of one name."""
    run = RunDirectory(tmp_path)
    take = RunDirectory._take
    taken = []

    def late(self, handle):
        if not taken:
            self.lock.unlink()
        taken.append(handle)
        return take(self, handle)

    monkeypatch.setattr(RunDirectory, "_take", late)
    with run.claimed(print):
        assert len(taken) == 2
        assert os.path.samestat(os.fstat(taken[1]), run.lock.stat())


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refused)
    said = []
    with RunDirectory(tmp_path).claimed(said.append):
        pass
    assert said == [f"{tmp_path}: its file system has no locks; let no other process train in it"]


def test_a_run_with_a_checkpoint_leaves_no_lock(tmp_path):
    assert train("--run-dir", "x") == 0
    assert not (tmp_path / "x" / ".lock").exists()


# ------------------------------------------------------------------------ what was left


def left_early(folder, *, config=True):
    """A folder as of a run that was killed in its second epoch, before any checkpoint."""
    folder.mkdir()
    (folder / ".lock").write_text("4000000\n")
    (folder / "metrics.jsonl").write_text('{"epoch": 1}\n{"epo')
    if config:
        assert train("--run-dir", "for-its-config") == 0
        (folder / "config.toml").write_text(Path("for-its-config/config.toml").read_text())


def test_a_run_killed_before_its_first_checkpoint_is_started_anew(capsys, tmp_path):
    folder = tmp_path / "x"
    left_early(folder)
    assert resume(folder) == 1
    line = refusal(capsys)
    assert "there is no such checkpoint; the run ended before its first one" in line
    command = line.split("(onegraph ")[1].removesuffix(")").split()
    assert main([*command, "--device", "host"]) == 0
    assert (
        f"{folder}/metrics.jsonl: 1 line of later epochs and 1 damaged line moved to"
        f" {folder}/metrics.jsonl.bak" in capsys.readouterr().err
    )
    assert (folder / "metrics.jsonl.bak").read_text() == '{"epoch": 1}\n{"epo\n'
    epochs = [json.loads(x)["epoch"] for x in (folder / "metrics.jsonl").read_text().splitlines()]
    assert epochs == [1, 2]
    straight = tmp_path / "for-its-config" / "checkpoints" / "last.safetensors"
    assert (folder / "checkpoints/last.safetensors").read_bytes() == straight.read_bytes()


def test_metrics_without_checkpoints_of_a_run_that_ended_are_not_touched(capsys, tmp_path):
    folder = tmp_path / "x"
    left_early(folder, config=False)
    (folder / ".lock").unlink()
    before = (folder / "metrics.jsonl").read_text()
    assert train("--run-dir", folder) == 1
    assert refusal(capsys).startswith(f"{folder} holds the metrics of another run; remove them")
    assert (folder / "metrics.jsonl").read_text() == before


def test_a_run_that_failed_before_its_first_checkpoint_is_started_anew(tmp_path, monkeypatch):
    from onegraph.trainer import loop as module

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_checkpoint", full)
    assert train("--run-dir", "x") == 1
    assert (tmp_path / "x" / "metrics.jsonl").exists()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert train("--run-dir", "x") == 0


def test_half_written_files_are_removed_at_the_next_start(capsys, tmp_path):
    assert train("--run-dir", "x") == 0
    folder = tmp_path / "x"
    before = sorted(p for p in folder.rglob("*"))
    for beside in (folder, folder / "checkpoints"):
        with partial_folder(beside) as partial:
            partial.with_name(partial.name + "-left").mkdir()
            (partial.with_name(partial.name + "-left") / "last.safetensors").write_bytes(b"half")
    assert resume(folder) == 0
    assert f"{folder}: removed 2 that a killed run left half written" in capsys.readouterr().err
    assert sorted(p for p in folder.rglob("*")) == before


def test_a_run_with_only_the_checkpoint_before_the_last_is_a_run(capsys, tmp_path):
    assert train("--run-dir", "x") == 0
    checkpoints = tmp_path / "x" / "checkpoints"
    (checkpoints / "last.safetensors").unlink()
    (checkpoints / "best.safetensors").unlink()
    assert train("--run-dir", "x") == 1
    assert "(--resume x/checkpoints/last-1.safetensors)" in refusal(capsys)
    assert resume("x") == 1
    assert "use x/checkpoints/last-1.safetensors instead" in refusal(capsys)
    assert resume("x/checkpoints/last-1.safetensors") == 0


def test_a_damaged_last_is_refused_and_the_one_before_goes_on_to_the_same_end(capsys, tmp_path):
    assert train("--run-dir", "x") == 0
    last = tmp_path / "x" / "checkpoints" / "last.safetensors"
    whole, before = last.read_bytes(), last.with_name("last-1.safetensors").read_bytes()
    metrics = tmp_path / "x" / "metrics.jsonl"
    last.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert resume("x") == 1
    line = refusal(capsys)
    assert "this is no whole checkpoint (its checksum is another" in line
    assert "use x/checkpoints/last-1.safetensors instead" in line
    assert "epoch 1 and learning step 16" in line
    assert resume("x/checkpoints/last-1.safetensors") == 0
    assert "; it is replaced" in capsys.readouterr().err
    assert last.read_bytes() == whole
    # The damaged one did not take the good one's place.
    assert last.with_name("last-1.safetensors").read_bytes() == before
    assert [json.loads(x)["epoch"] for x in metrics.read_text().splitlines()] == [1, 2]


def test_going_on_with_a_finished_run_keeps_the_one_before(tmp_path):
    assert train("--run-dir", "x") == 0
    folder = tmp_path / "x" / "checkpoints"
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert resume("x") == 0
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_an_older_checkpoint_has_its_note(capsys, tmp_path):
    from trainer.test_checkpoint import as_first_format

    assert train("--run-dir", "x") == 0
    as_first_format(tmp_path / "x" / "checkpoints" / "last.safetensors")
    assert resume("x") == 0
    assert (
        "x/checkpoints/last.safetensors was written by an earlier version, and has no checksum"
        in capsys.readouterr().err
    )
