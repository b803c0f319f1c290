"""Running what is missing of a walk-forward: one by one, or in processes side by side.

Both run `onegraph.trainer.walkforward.run.train_run`; a process is started anew for each run, with
nothing of this one's memory, so that the two ways give the same numbers.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from onegraph.trainer.loop import InterruptedRunError
from onegraph.trainer.walkforward.errors import WalkforwardError
from onegraph.trainer.walkforward.plan import Plan, RunId
from onegraph.trainer.walkforward.run import train_run

#: Module of the worker's command line.
WORKER = "onegraph.trainer.cli.walkforward_worker"

#: What a worker's process leaves in the run's folder where it had something to say.
LOG = "worker.log"

#: A worker's exit code after it saved its state and stopped.
INTERRUPTED = 130

#: Names a device to CUDA's driver; unset, all are visible.
VISIBLE = "CUDA_VISIBLE_DEVICES"


class Watcher(Protocol):
    """Hears of each run."""

    def progress(self, run: RunId, done: float, note: str) -> None:
        """The share of the run that is done, and a few words."""

    def finished(self, run: RunId) -> None:
        """Its result is written."""

    def failed(self, run: RunId, cause: str) -> None:
        """It could not be done; the others go on."""


def one_by_one(
    plan: Plan,
    root: Path,
    runs: Sequence[RunId],
    watcher: Watcher,
    stop: Callable[[], bool],
    expected: tuple[type[Exception], ...],
) -> bool:
    """Run in this process, window by window.

    Args:
        plan: the walk-forward's.
        root: its folder.
        runs: those that are missing.
        watcher: hears of them.
        stop: asked between steps.
        expected: errors that end a run and not the others.

    Returns:
        False if `stop` said so.
    """
    for run in runs:
        if stop():
            return False
        try:
            train_run(
                plan,
                run,
                root,
                stop=stop,
                tell=lambda done, note, run=run: watcher.progress(run, done, note),  # type: ignore[misc]
            )
        except InterruptedRunError:
            return False
        except MemoryError as error:
            watcher.failed(run, out_of_memory(error))
        except expected as error:
            watcher.failed(run, one_line(error))
        else:
            watcher.finished(run)
    return True


def one_line(error: BaseException) -> str:
    """An error's message in one line."""
    return " ".join(str(error).split())


def out_of_memory(error: MemoryError) -> str:
    """What to do where the host's memory is short."""
    return f"out of host memory ({one_line(error)}); lower replay.capacity or walkforward.workers"


# ---------------------------------------------------------------- processes


@dataclass
class _Worker:
    run: RunId
    process: subprocess.Popen[str]
    log: Path
    cause: str = ""
    foreign: list[str] = field(default_factory=list)


def in_processes(
    root: Path,
    runs: Sequence[RunId],
    workers: int,
    gpus: Sequence[int],
    watcher: Watcher,
    stop: Callable[[], bool],
) -> bool:
    """Run so many at a time, each in a process of its own.

    Args:
        root: the walk-forward's folder, with its plan written.
        runs: those that are missing.
        workers: how many at a time.
        gpus: devices that they are spread over; empty: what each takes by itself.
        watcher: hears of them.
        stop: asked a few times a second; when it says yes every worker saves its state and ends.

    Returns:
        False if `stop` said so.

    Raises:
        WalkforwardError: a device that is not visible here.
    """
    environments = [worker_environment(gpus, slot, os.environ) for slot in range(workers)]
    waiting, free = deque(runs), deque(range(workers))
    active: dict[int, _Worker] = {}
    said: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
    stopping = False
    try:
        while waiting or active:
            if stop() and not stopping:
                stopping = True
                waiting.clear()
                for worker in active.values():
                    worker.process.terminate()
            while waiting and free:
                slot = free.popleft()
                active[slot] = _start(root, waiting.popleft(), environments[slot])
                listener = threading.Thread(
                    target=_listen, args=(slot, active[slot].process, said), daemon=True
                )
                listener.start()
            try:
                slot, line = said.get(timeout=0.2)
            except queue.Empty:
                continue
            if line is not None:
                _hear(active[slot], line, watcher)
                continue
            worker = active.pop(slot)
            free.append(slot)
            _conclude(worker, watcher, stopping)
    finally:
        for worker in active.values():  # only after an error, or a second Ctrl-C
            worker.process.kill()
            worker.process.wait()
    return not stopping


def worker_environment(
    gpus: Sequence[int], slot: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the worker in a slot: that of this process, with one device visible.

    Args:
        gpus: numbers among the devices that are visible to this process.
        slot: from 0; the devices are gone round.
        environ: of this process.

    Raises:
        WalkforwardError: a number that this process's own CUDA_VISIBLE_DEVICES does not have.
    """
    found = dict(environ)
    if not gpus:
        return found
    gpu = gpus[slot % len(gpus)]
    found[VISIBLE] = str(gpu)
    if VISIBLE in environ:
        visible = [name.strip() for name in environ[VISIBLE].split(",") if name.strip()]
        if gpu >= len(visible):
            raise WalkforwardError(
                f"walkforward.gpus has {gpu}, and {VISIBLE} = {environ[VISIBLE]!r} leaves"
                f" {len(visible)} devices, counted from 0; name those, or unset it"
            )
        found[VISIBLE] = visible[gpu]
    return found


def _start(root: Path, run: RunId, environment: dict[str, str]) -> _Worker:
    folder = run.folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG
    safe = ["-P"] if sys.flags.safe_path else []
    command = [sys.executable, *safe, "-m", WORKER, str(root), str(run.window), str(run.seed)]
    with log.open("w") as errors:
        # In a session of its own, so that a terminal's Ctrl-C reaches it once, through us.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,
        )
    return _Worker(run, process, log)


def _listen(
    slot: int, process: subprocess.Popen[str], said: queue.SimpleQueue[tuple[int, str | None]]
) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            said.put((slot, line))
    process.wait()
    said.put((slot, None))


def _hear(worker: _Worker, line: str, watcher: Watcher) -> None:
    try:
        told: dict[str, Any] = json.loads(line)
        if "failed" in told:
            worker.cause = str(told["failed"])
        else:
            watcher.progress(worker.run, float(told["done"]), str(told["note"]))
    except (ValueError, KeyError, TypeError):
        worker.foreign.append(line)  # not of our making, and it may say what is wrong


def _conclude(worker: _Worker, watcher: Watcher, stopping: bool) -> None:
    code = worker.process.wait()
    text = worker.log.read_text(encoding="utf-8", errors="replace").strip()
    if worker.foreign:
        with worker.log.open("a", encoding="utf-8") as log:
            log.write("on standard output:\n" + "".join(worker.foreign))
    elif not text:
        worker.log.unlink()
    if code == 0:
        watcher.finished(worker.run)
    elif stopping and code in (INTERRUPTED, -signal.SIGTERM):
        return  # as we asked; the second where it had not begun yet
    elif code == INTERRUPTED:
        watcher.failed(worker.run, "its process was stopped from outside, with its state saved")
    else:
        watcher.failed(worker.run, worker.cause or _cause(code, text, worker.log))


def _cause(code: int, text: str, log: Path) -> str:
    """Why a worker that said nothing ended."""
    if code < 0:
        name = signal.Signals(-code).name
        short = ", as where memory is short" if -code == signal.SIGKILL else ""
        how = f"its process was killed by {name}{short}"
    else:
        how = f"its process ended with exit code {code}"
    if not text:
        return how
    return f"{how}: {text.splitlines()[-1].strip()} (all of it in {log})"
