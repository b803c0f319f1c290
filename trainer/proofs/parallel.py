"""Several runs at once, each in a process of its own; one GPU serves them all."""

from __future__ import annotations

import multiprocessing as mp
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from onegraph.trainer.progress import ProgressDisplay
from onegraph.trainer.proofs.outcome import Outcome
from onegraph.trainer.proofs.run import Task, run_task

Say = Callable[[Outcome], None]


def run_tasks(tasks: Sequence[Task], jobs: int, say: Say = lambda _: None) -> list[Outcome]:
    """The outcome of each task, in their order.

    Args:
        tasks: any number.
        jobs: how many run at once; with 1 they run in this process, one after the other.
        say: told each outcome as it comes.
    """
    total = sum(task.steps for task in tasks if not task.proof.missing())
    with ProgressDisplay(total, "proofs, env steps") as display:
        shown = _Shown(tasks, display, say)
        if jobs == 1 or len(tasks) < 2:
            return [shown.ended(i, run_task(t, shown.teller(i))) for i, t in enumerate(tasks)]
        return _in_processes(tasks, jobs, shown)


class _Shown:
    """How far each task is, on one display."""

    def __init__(self, tasks: Sequence[Task], display: ProgressDisplay, say: Say) -> None:
        self.tasks, self.display, self.say = tasks, display, say
        self._done = [0] * len(tasks)

    def at(self, index: int, steps: int) -> None:
        """Task `index` has done so many env steps."""
        self._done[index] = steps
        self.display.update(sum(self._done), self.tasks[index].label)

    def teller(self, index: int) -> Callable[[int], None]:
        """What task `index` is to call."""
        return lambda steps: self.at(index, steps)

    def ended(self, index: int, outcome: Outcome) -> Outcome:
        """Show the end of task `index`, and give its outcome back."""
        if not self.tasks[index].proof.missing():
            self.at(index, self.tasks[index].steps)
        self.say(outcome)
        return outcome


@dataclass(frozen=True)
class _Running:
    index: int
    process: BaseProcess


def _in_processes(tasks: Sequence[Task], jobs: int, shown: _Shown) -> list[Outcome]:
    waiting = deque(range(len(tasks)))
    running: dict[Connection, _Running] = {}
    outcomes: dict[int, Outcome] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index = waiting.popleft()
                connection, process = _started(tasks[index])
                running[connection] = _Running(index, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                index = running[ready].index
                told = _told(ready, running[ready].process, tasks[index])
                if isinstance(told, int):
                    shown.at(index, told)
                    continue
                running.pop(ready).process.join()
                ready.close()
                outcomes[index] = shown.ended(index, told)
    finally:
        for run in running.values():  # some are left after Ctrl-C alone
            run.process.terminate()
        for run in running.values():
            run.process.join()
    return [outcomes[i] for i in range(len(tasks))]


def _started(task: Task) -> tuple[Connection, BaseProcess]:
    """A process that runs the task, and where it tells its env steps and at last its outcome."""
    context = mp.get_context("spawn")  # a forked process can't use its parent's CUDA
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_run_one, args=(task, there), daemon=True)
    process.start()
    there.close()  # so that the end of the process is the end of the pipe
    return here, process


def _run_one(task: Task, there: Connection) -> None:
    there.send(run_task(task, there.send))


def _told(here: Connection, process: BaseProcess, task: Task) -> int | Outcome:
    try:
        told: int | Outcome = here.recv()
    except EOFError:
        process.join()
        why = (
            f"its process died with exit code {process.exitcode}; if memory was short, run fewer at"
            " once (--jobs)"
        )
        return Outcome(task.proof.name, task.seed, "broke off", trouble=why)
    return told
