"""Small training runs that are killed: at any moment from outside, or at a step of writing.

As a program it forks a training process for each step of writing and ends it by SIGKILL there:
``python kill.py FOLDER STRIDE FIRST TRAIN-ARGUMENTS...`` prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from onegraph.trainer import checkpoint
from onegraph.trainer.cli import main

#: A program of the package, as ``onegraph`` is.
COMMAND = [
    *(sys.executable, "-P", "-c"),
    "import sys; from onegraph.trainer.cli import main; sys.exit(main())",
]

FIELDS = {
    "env.lanes": 4,
    "replay.capacity": 100,
    "learn.batch_size": 16,
    "network.hidden": "[8]",
    "loop.start_steps": 64,
    "loop.epoch_steps": 4,
    "loop.timed_steps": 0,
}


def arguments(epochs: int) -> list[str]:
    """Of ``onegraph`` for a new run of so many epochs, less its folder."""
    total = 64 + 4 * (4 * epochs - 1)
    fields = FIELDS | {"loop.total_env_steps": total}
    sets = [part for name, value in fields.items() for part in ("--set", f"{name}={value}")]
    return ["train", "--config", "chain", "--device", "host", *sets]


# ------------------------------------------------------------------------ from outside


def started(command: list[str]) -> subprocess.Popen[bytes]:
    """A process that runs a command and says nothing."""
    return subprocess.Popen(
        [*COMMAND, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def begun(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    """A process that runs a command, from the moment that it trains in the folder."""
    process, lock = started(command), folder / ".lock"
    while process.poll() is None:
        with suppress(FileNotFoundError):
            if lock.read_text().strip() == str(process.pid):
                break
        time.sleep(0.001)
    return process


def killed_after(seconds: float, folder: Path, command: list[str]) -> bool:
    """Kill a command so many seconds after it began in the folder; whether it still ran by then.

    A negative number counts from the start of its process.
    """
    process = begun(folder, command) if seconds >= 0 else started(command)
    time.sleep(abs(seconds))
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    assert code in (0, -signal.SIGKILL), command
    return code != 0


def go_on(folder: Path, new: list[str], errors: Callable[[], str]) -> str:
    """Go on with a run that was killed, as its user is told to; says which way that was.

    Args:
        new: arguments of a new run.
        errors: what standard error has got since the last call.
    """
    command = way_on(folder, new, errors)
    assert main(command) == 0, errors()
    return "resumed" if "--resume" in command else "started anew"


def way_on(folder: Path, new: list[str], errors: Callable[[], str]) -> list[str]:
    """The command that goes on with a run, found by asking for ``--resume`` of its folder."""
    # An override that can't be used: refused once the checkpoint is found good, before any step.
    probe = ["train", "--device", "host", "--set", "seed=-1", "--resume"]
    errors()
    assert main([*probe, str(folder)]) == 1
    said = errors()
    assert "Traceback" not in said
    if "override seed = -1" in said:
        return ["train", "--device", "host", "--resume", str(folder)]
    assert "there is no such checkpoint" in said
    if named := re.search(r"\(--resume (\S+)\)", said):
        return ["train", "--device", "host", "--resume", named[1]]
    assert "so there is nothing to go on from" in said or not (folder / "config.toml").exists()
    return [*new, "--run-dir", str(folder)]


# ------------------------------------------------------------------------ at a step of writing


class Killer:
    """Counts the steps of writing of this process, and ends it at one of them.

    Args:
        at: the step, from 1 on.
    """

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            self.step()
            result = call(*given, **named)
            self.step()
            return result

        return watched

    def save_file(self, tensors: Any, path: Path, **named: Any) -> None:
        """Write half of the file, and then all of it."""
        whole_file(tensors, path, **named)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        self.step()
        path.write_bytes(whole)

    def install(self) -> None:
        for name in ("fsync", "replace", "link", "write", "truncate"):
            setattr(os, name, self.around(getattr(os, name)))
        checkpoint.save_file = self.save_file


whole_file = checkpoint.save_file


def train_until(step: int, folder: Path, new: list[str]) -> NoReturn:
    """In a child process: train, and be killed at the `step`-th step of writing."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    Killer(step).install()
    os._exit(main([*new, "--run-dir", str(folder)]))


def kill_at_each_step(folder: Path, stride: int, first: int, new: list[str]) -> None:
    """Kill a run at step `first`, another at `first + stride`, ... until one comes to its end."""
    step, killed = first, True
    while killed:
        child = os.fork()
        if child == 0:
            train_until(step, folder / str(step), new)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"step": step, "killed": killed, "status": status}), flush=True)
        step += stride


if __name__ == "__main__":
    kill_at_each_step(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
