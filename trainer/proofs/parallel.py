"""Several runs at once, in processes of their own; one GPU serves them all."""

from __future__ import annotations

import multiprocessing as mp
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from onegraph.trainer.progress import ProgressDisplay
from onegraph.trainer.proofs.outcome import Outcome
from onegraph.trainer.proofs.run import Task, run_task

#: Seconds between two looks at what the runs tell.
LOOK_EVERY = 0.5

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
        shown = _Shown(tasks, display)
        if jobs == 1 or len(tasks) < 2:
            return [shown.ended(i, run_task(t, shown.teller(i)), say) for i, t in enumerate(tasks)]
        return _in_processes(tasks, min(jobs, len(tasks)), shown, say)


class _Shown:
    """How far each task is, on one display."""

    def __init__(self, tasks: Sequence[Task], display: ProgressDisplay) -> None:
        self.tasks, self.display = tasks, display
        self._done = [0] * len(tasks)

    def at(self, index: int, steps: int) -> None:
        """Task `index` has done so many env steps."""
        self._done[index] = steps
        self.display.update(sum(self._done), self.tasks[index].label)

    def teller(self, index: int) -> Callable[[int], None]:
        """What task `index` is to call."""
        return lambda steps: self.at(index, steps)

    def ended(self, index: int, outcome: Outcome, say: Say) -> Outcome:
        """Show the end of task `index`, and give its outcome back."""
        if not self.tasks[index].proof.missing():
            self.at(index, self.tasks[index].steps)
        say(outcome)
        return outcome


def _in_processes(tasks: Sequence[Task], jobs: int, shown: _Shown, say: Say) -> list[Outcome]:
    context = mp.get_context("spawn")  # a forked process can't use its parent's CUDA
    with context.Manager() as manager:
        told: Any = manager.Queue()
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            try:
                return _all_of(tasks, pool, told, shown, say)
            except BaseException:
                # Leaving the pool would wait for what has not begun yet.
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _all_of(
    tasks: Sequence[Task], pool: ProcessPoolExecutor, told: Any, shown: _Shown, say: Say
) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    waiting = {pool.submit(_run_one, i, task, told): i for i, task in enumerate(tasks)}
    while waiting:
        ended, _ = wait(waiting, LOOK_EVERY, FIRST_COMPLETED)
        _show_all(told, shown)
        for future in ended:
            index = waiting.pop(future)
            outcomes[index] = shown.ended(index, _outcome(tasks[index], future), say)
    return [outcomes[i] for i in range(len(tasks))]


def _run_one(index: int, task: Task, told: Any) -> Outcome:
    return run_task(task, lambda steps: told.put((index, steps)))


def _show_all(told: Any, shown: _Shown) -> None:
    while True:
        try:
            shown.at(*told.get_nowait())
        except queue.Empty:
            return


def _outcome(task: Task, future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        why = "a process died (out of memory?); run fewer at once (--jobs)"
        return Outcome(task.proof.name, task.seed, "broke off", trouble=why)
