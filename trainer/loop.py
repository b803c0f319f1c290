"""The training loop: collect, learn, and once an epoch look at what happened."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from onegraph.guards.markers import cold_path, hot_path
from onegraph.kernels.common.layout import LoopEnding
from onegraph.kernels.learner.publish import PublishedRecord, RecordField
from onegraph.stages.phase_report import PhaseReport, phase_report
from onegraph.stages.registry import format_set
from onegraph.trainer.atomic_files import replace_bytes
from onegraph.trainer.checkpoint import (
    CheckpointError,
    checked_progress,
    load_checkpoint,
    save_checkpoint,
)
from onegraph.trainer.config import config_to_toml
from onegraph.trainer.envs.base import FinishedEpisodes
from onegraph.trainer.event_log import EventLog, require_tensorboard
from onegraph.trainer.market import Metrics
from onegraph.trainer.metrics_log import append_line, keep_epochs
from onegraph.trainer.offline import held_out_figures
from onegraph.trainer.part_figures import PartFigures, part_figures
from onegraph.trainer.progress import Display, ProgressDisplay
from onegraph.trainer.replay import BATCH
from onegraph.trainer.run_directory import RunDirectory
from onegraph.trainer.trainer import LEARNED, Progress, Trainer, TrainerError
from onegraph.trainer.validation import validator

#: How often the display, and the check for skipped steps, look at the published record.
DISPLAY_EVERY = 64

#: Seconds between two updates of the display while the device takes rounds by itself.
SHOW_EVERY_S = 0.1


class InterruptedRunError(Exception):
    """The run was asked to stop, and stopped with its state saved."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(f"interrupted; the state is in {checkpoint}")
        self.checkpoint = checkpoint


class NonFiniteError(TrainerError):
    """Too many learning steps in a row were skipped: their gradients were NaN or infinite.

    Attributes:
        step: the learning step at which the run stopped.
        checkpoint: the last good state; ``None`` if there is none.
    """

    def __init__(self, message: str, step: int, checkpoint: Path | None) -> None:
        super().__init__(message)
        self.step, self.checkpoint = step, checkpoint


@dataclass
class EpochSummary:
    """An epoch in numbers; a line of ``metrics.jsonl``.

    Attributes:
        step_ms: wall milliseconds of the epoch's last learning step, from an idle device until it
            is idle again.
        seconds: wall seconds of the epoch, collecting and evaluation included.
        skipped, nonfinite_td, invalid_rows: since the run began: steps skipped for a gradient that
            was not finite, TD errors that were not, rows inserted that were not.
        epoch_skipped, epoch_invalid_rows: in this epoch.
        skipped_in_a_row: steps of the longest run of skipped ones that reaches into this epoch.
        parts: of the epoch's last learning step; ``None`` where no such part is on.
        extra: by name what the environment measures, and the means of the collected episodes.
        stages, device: under which its times were taken; a resumed run may change them.
    """

    epoch: int
    learn_steps: int
    env_steps: int
    seconds: float
    step_ms: float
    loss: float
    grad_norm: float
    td_mean: float
    q_mean: float
    learning_rate: float
    epsilon: float
    skipped: int
    nonfinite_td: int
    invalid_rows: int
    phases: PhaseReport | None = None
    validation: Metrics | None = None
    score: float | None = None
    extra: dict[str, float] = field(default_factory=dict)
    stages: str = ""
    device: str = ""
    epoch_skipped: int = 0
    epoch_invalid_rows: int = 0
    skipped_in_a_row: int = 0
    parts: PartFigures | None = None

    def as_json(self) -> str:
        """One line; a figure that is not finite is ``null``, which JSON has."""
        return json.dumps(_finite(asdict(self)), allow_nan=False)

    def line(self) -> str:
        """A line for the log."""
        parts = [
            f"epoch {self.epoch}",
            # An offline run steps no environment.
            f"{self.env_steps:,} env steps" if self.env_steps else f"{self.learn_steps:,} steps",
            f"loss {self.loss:.4g}",
            f"Q {self.q_mean:.4g}",
            f"step_ms {self.step_ms:.3f}",
            f"{self.seconds:.1f} s",
        ]
        if (gain := self.extra.get("episode_return")) is not None:
            parts.append(f"return {gain:.4g} of {self.extra['episodes']:,.0f} episodes")
        if self.score is not None:
            parts.append(f"score {self.score:.4g}")
        if self.epoch_skipped:
            parts.append(f"{self.epoch_skipped} steps skipped, {self.skipped_in_a_row} in a row")
        if self.epoch_invalid_rows:
            parts.append(f"{self.epoch_invalid_rows} rows invalid")
        if self.parts is not None:
            parts += self.parts.words()
        return " · ".join(parts)


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case float() if not math.isfinite(value):
            return None
    return value


class Loop:
    """Trains for the configured number of env steps, from wherever the trainer stands.

    Args:
        run_dir: where ``config.toml``, ``metrics.jsonl`` and ``checkpoints/`` go, and with
            `loop.tensorboard` the event files.
        stop: asked between steps; when it says yes the state is saved and the run ends with
            `InterruptedRunError`.
        after_epoch: called at the end of each epoch with its summary, when no step runs.
        display: makes what shows the progress, from the total and a label.

    Raises:
        TensorBoardUnavailableError: `loop.tensorboard` is on, and tensorboardX is not installed.
    """

    def __init__(
        self,
        trainer: Trainer,
        run_dir: Path,
        *,
        stop: Callable[[], bool] = lambda: False,
        display: Callable[[int, str], Display] = ProgressDisplay,
        after_epoch: Callable[[EpochSummary], None] = lambda _: None,
    ) -> None:
        self.trainer, self.run_dir, self.stop = trainer, run_dir, stop
        self.directory = RunDirectory(run_dir)
        self.after_epoch = after_epoch
        self.config = trainer.config
        if self.config.loop.tensorboard:
            require_tensorboard()
        self.events: EventLog | None = None
        self._kept: Progress | None = None
        self.epochs: list[EpochSummary] = []
        self._asked_to_stop = False
        self._deadline = math.inf
        self._shown = 0.0
        self.display: Display | None = None
        self._make_display = display
        self._begun = trainer.progress.learns
        self._validate = validator(trainer.environment, trainer)

    # ---------------------------------------------------------------- files

    @property
    def last_checkpoint(self) -> Path:
        """The newest state, to resume from."""
        return self.directory.last

    @property
    def best_checkpoint(self) -> Path:
        """The state with the best validation score."""
        return self.directory.best

    @cold_path("writes a checkpoint")
    def _save(self, path: Path) -> None:
        if path.exists() and (broken := self.trainer.nonfinite()):
            self._say(f"{path} stays as it is: {_named(broken)} now")
            return
        if path != self.last_checkpoint:
            save_checkpoint(path, self.trainer)
        elif self._kept != self.trainer.progress:  # or it would be the one before itself
            save_checkpoint(path, self.trainer, previous=self._place_of_the_one_before())
            self._kept = replace(self.trainer.progress)

    def _place_of_the_one_before(self) -> Path | None:
        """Where the last checkpoint goes when another takes its place; ``None`` for nowhere.

        One that is not ours may be damaged, or of the very state that we go on from: neither may
        take the place of a good one before it.
        """
        if self._kept is None and self.last_checkpoint.exists():
            try:
                there = checked_progress(self.last_checkpoint)
            except CheckpointError as error:
                self._say(f"{error}; it is replaced")
                return None
            if there == self.trainer.progress:
                return None
        return self.directory.previous

    def _say(self, line: str) -> None:
        if self.display is not None:
            self.display.say(line)
        else:
            self.trainer.say(line)

    def _prepare(self) -> None:
        """Bring the folder to where the trainer stands, whatever a run before left there."""
        removed = self.directory.remove_partial()
        if removed:
            self._say(f"{self.run_dir}: removed {removed} that a killed run left half written")
        replace_bytes(self.directory.config, config_to_toml(self.config).encode())
        if cut := keep_epochs(self.directory.metrics, self.trainer.progress.epoch):
            self._say(f"{self.directory.metrics}: {cut}")

    # ---------------------------------------------------------------- the loop

    def run(self) -> list[EpochSummary]:
        """Train to the end.

        Raises:
            RunBusyError: another process trains in the folder.
            InterruptedRunError: after saving, when `stop` said so.
            NonFiniteError: after saving, when `loop.nonfinite_limit` steps in a row were skipped.
        """
        with self.directory.claimed(self._say), ExitStack() as stack:
            self._prepare()
            if self.config.loop.tensorboard:
                log = EventLog(self.directory.events, self._done)
                self.events = stack.enter_context(log)
            self._train()
        return self.epochs

    def _train(self) -> None:
        self._begun = self.trainer.progress.learns
        total, limit = self._total, self.config.loop.time_limit_s
        self._deadline = time.monotonic() + limit if limit else math.inf
        with self._make_display(total, f"stages {format_set(self.trainer.stages)}") as display:
            self.display = display
            try:
                while self._done < total and not self._stale():
                    if self._late():
                        self._say(f"loop.time_limit_s = {limit:g} is over; go on with --resume")
                        break
                    self._epoch(total)
            finally:
                self.display = None
        self._save(self.last_checkpoint)
        if not self.best_checkpoint.exists():
            self._save(self.best_checkpoint)

    @property
    def _total(self) -> int:
        """Where the run ends: in env steps, or in learn steps where nothing is collected."""
        config = self.config
        return config.loop.total_env_steps if self._collects else config.offline.learn_steps

    @property
    def _done(self) -> int:
        """How far it is, in the unit of `_total`."""
        return self.trainer.env_steps if self._collects else self.trainer.progress.learns

    @property
    def _collects(self) -> bool:
        return self.trainer.offline is None

    def _stale(self) -> bool:
        patience = self.config.loop.early_stop_epochs
        return bool(patience) and self.trainer.progress.epochs_without_gain >= patience

    def _late(self) -> bool:
        return time.monotonic() >= self._deadline

    @hot_path
    def _epoch(self, total: int) -> None:
        trainer, loop = self.trainer, self.config.loop
        started = time.perf_counter()
        first = trainer.progress.learns
        # A run that is resumed within an epoch goes on to the end of that epoch.
        begin = trainer.progress.learns // loop.epoch_steps * loop.epoch_steps
        goal = begin + loop.epoch_steps
        if not self._collects:
            goal = min(goal, total)
        each = loop.learn_every if self._collects else 0
        stamp, step_ms, learning_since = 0, 0.0, 0.0
        while trainer.progress.learns < goal and self._done < total:
            self._check_stop()
            if self._late():
                return
            if (count := self._rounds_ahead(goal, total)) > 0:
                learning_since = learning_since or time.perf_counter()
                self._take_rounds(count)
                continue
            for _ in range(each):
                trainer.collect()
            if trainer.rows < loop.start_steps:
                self._show("filling the replay")
                continue
            learning_since = learning_since or time.perf_counter()
            round_end = min(trainer.progress.learns + loop.learns_per_collect, goal)
            ends = round_end == goal or self._done >= total
            end = self._epoch_end(goal, total, round_end)
            while (step := trainer.progress.learns) < round_end:
                if ends and step == round_end - 1:
                    step_ms = self._measured_step()
                else:
                    trainer.learn(timed=self._is_timed(step % loop.epoch_steps, end - step))
            if trainer.progress.learns % DISPLAY_EVERY == 0:
                record = trainer.latest(after=stamp)
                if record is not None:
                    stamp = record.step
                    self._check_finite(record)
                self._show(f"epoch {trainer.progress.epoch}, learn step {stamp:,}")
        if trainer.progress.learns > first:
            wall_ms = (time.perf_counter() - learning_since) / (trainer.progress.learns - first)
            self._finish_epoch(trainer.progress.learns - begin, step_ms, wall_ms * 1e3, started)

    def _is_timed(self, position: int, left: int) -> bool:
        """K steps of the epoch, evenly spread; the last one is timed by `_measured_step`.

        Where the device takes the rounds by itself they are the last K: a step in its loop can't be
        timed, and each that the host launches between would have it wait for the host.
        """
        count, steps = self.config.loop.timed_steps, self.config.loop.epoch_steps
        if self.trainer.loops:
            return left <= count
        return (position + 1) * count // steps > position * count // steps

    def _epoch_end(self, goal: int, total: int, round_end: int) -> int:
        """The learning step at which the epoch ends, seen from a round whose rows are collected."""
        ahead = max(total - self.trainer.env_steps, 0)
        loop = self.config.loop
        rounds = -(-ahead // (loop.learn_every * self.trainer.shapes.lanes))
        return min(goal, round_end + rounds * loop.learns_per_collect)

    def _rounds_ahead(self, goal: int, total: int) -> int:
        """Whole rounds that the device can take by itself before the steps that are timed."""
        trainer, loop = self.trainer, self.config.loop
        # The first step is launched by itself: it warms up and captures, which a timed one may not.
        if not trainer.loops or not trainer.captured:
            return 0
        collected = loop.learn_every * trainer.shapes.lanes
        if min(trainer.env_steps + collected, trainer.shapes.capacity) < loop.start_steps:
            return 0
        rounds = -(-(total - trainer.env_steps) // collected)
        left = min(goal - trainer.progress.learns, rounds * loop.learns_per_collect)
        timed = loop.timed_steps if trainer.keeps_times else 0
        return (left - max(timed, 1)) // loop.learns_per_collect

    @hot_path
    def _take_rounds(self, count: int) -> None:
        trainer = self.trainer
        limit = self.config.loop.nonfinite_limit
        taken = trainer.take_rounds(count, limit=limit, begun=self._begun, look=self._look)
        if taken.ending is LoopEnding.NONFINITE:
            record = trainer.latest()
            assert record is not None  # nothing writes it now, and there was a step
            self._give_up(record.step, int(record[RecordField.SKIPPED_IN_A_ROW]))

    @hot_path
    def _look(self) -> None:
        """What the host does while the device takes rounds."""
        if self._stops() or self._late():
            self.trainer.stop_rounds()
        now = time.monotonic()
        if now - self._shown >= SHOW_EVERY_S and self.display is not None:
            self._shown = now
            self.display.update(self.trainer.seen_env_steps, f"epoch {self.trainer.progress.epoch}")

    @cold_path("times one step of the epoch between two waits")
    def _measured_step(self) -> float:
        """The epoch's last learning step, from an idle device to an idle device, in ms."""
        self.trainer.wait()
        before = time.perf_counter()
        self.trainer.learn(timed=self.config.loop.timed_steps > 0)
        self.trainer.wait()
        return (time.perf_counter() - before) * 1e3

    def _stops(self) -> bool:
        """Whether it was asked to stop: what was asked once is not asked again."""
        self._asked_to_stop = self._asked_to_stop or self.stop()
        return self._asked_to_stop

    def _check_stop(self) -> None:
        if self._stops():
            self._save(self.last_checkpoint)
            raise InterruptedRunError(self.last_checkpoint)

    def _check_finite(self, record: PublishedRecord) -> None:
        run = int(record[RecordField.SKIPPED_IN_A_ROW])
        if self._too_many(record.step, run):
            self._give_up(record.step, run)

    def _too_many(self, step: int, run: int) -> bool:
        """Whether the skipped steps up to `step`, `run` in a row, reach the limit.

        Those before a resumed run went on do not count: it has as many anew.
        """
        limit = self.config.loop.nonfinite_limit
        return bool(limit) and min(run, step - self._begun) >= limit

    @cold_path("ends the run")
    def _give_up(self, step: int, run: int) -> NoReturn:
        """Save the last good state, and say where it is and what is not finite."""
        trainer, limit = self.trainer, self.config.loop.nonfinite_limit
        trainer.wait()
        now = trainer.latest()  # the device may be past `step`, and may have come out of it
        last = step - run if now is None else now.step - int(now[RecordField.SKIPPED_IN_A_ROW])
        broken = trainer.nonfinite()
        batch = trainer.nonfinite((BATCH.states, BATCH.rewards, BATCH.next_states, BATCH.weights))
        good: Path | None = self.last_checkpoint
        if not broken:
            self._save(self.last_checkpoint)
            kept = (
                f"skipped steps change no parameters: those of step {last:,}, the last good ones,"
                f" are in {good}"
            )
        elif (good := self._last_finite_checkpoint()) is not None:
            kept = f"the last good state is in {good}"
        else:
            kept = "no checkpoint has a good state"
        if broken:
            why = f"{_named(broken)}; go on from a good state (--resume), or start anew"
        elif batch:
            why = f"in the last batch {_named(batch)}: look for what wrote them to the replay"
        else:
            why = (
                "parameters and batch are finite, so values or gradients overflow: lower"
                " learn.lr.start, set learn.max_grad_norm, or scale the rewards down"
            )
        raise NonFiniteError(
            f"learning step {step:,}: {run:,} steps in a row were skipped, for gradients that were"
            f" NaN or infinite (loop.nonfinite_limit = {limit:,}); {why}; {kept}",
            step,
            good,
        )

    def _last_finite_checkpoint(self) -> Path | None:
        """The newest of the run's checkpoints whose parameters, moments and target are finite."""
        found: list[tuple[int, Path]] = []
        for path in self.directory.checkpoints:
            try:
                saved = load_checkpoint(path)
            except CheckpointError:
                continue
            if all(np.isfinite(saved.state[name]).all() for name in LEARNED):
                found.append((saved.progress.learns, path))
        return max(found)[1] if found else None

    def _show(self, note: str) -> None:
        if self.display is not None:
            self.display.update(self._done, note)

    @cold_path("once an epoch")
    def _finish_epoch(self, steps: int, step_ms: float, wall_ms: float, started: float) -> None:
        trainer = self.trainer
        history = trainer.history(steps)
        report = phase_report(trainer.timings(), step_ms, wall_ms)
        runs = history["skipped_in_a_row"]
        invalid = int(history["invalid_row"][-1])
        trainer.progress.epoch += 1
        summary = EpochSummary(
            epoch=trainer.progress.epoch,
            learn_steps=trainer.progress.learns,
            env_steps=trainer.env_steps,
            seconds=0.0,
            step_ms=step_ms,
            loss=float(np.mean(history["loss"])),
            grad_norm=float(np.mean(history["grad_norm"])),
            td_mean=float(np.mean(history["td_mean"])),
            q_mean=float(np.mean(history["q_mean"])),
            learning_rate=float(history["learning_rate"][-1]),
            epsilon=float(history["epsilon"][-1]),
            skipped=int(history["skipped"][-1]),
            nonfinite_td=int(history["nonfinite_td"][-1]),
            invalid_rows=invalid,
            epoch_skipped=int(np.count_nonzero(runs)),
            epoch_invalid_rows=invalid - trainer.progress.invalid_rows,
            skipped_in_a_row=int(runs.max()),
            phases=report,
            parts=part_figures(trainer),
            stages=format_set(trainer.stages),
            device=f"{trainer.device.kind} ({trainer.device.name})",
        )
        trainer.progress.invalid_rows = invalid
        if (finished := trainer.take_finished()) is not None:
            summary.extra.update(_collected(finished))
        is_best = self._score(summary)
        summary.seconds = time.perf_counter() - started
        self.epochs.append(summary)
        # Before any checkpoint of the epoch, so that whichever is gone on from has its line.
        append_line(self.directory.metrics, summary.as_json())
        if self.events is not None:
            self.events.write(self._done, _finite(asdict(summary)))
        if is_best:
            self._save(self.best_checkpoint)
        if self.display is not None:
            self.display.say(summary.line())
        self.after_epoch(summary)
        at = history["stamp_end"]
        longest = int(np.argmax(np.minimum(runs, at - self._begun)))
        if self._too_many(int(at[longest]), int(runs[longest])):
            self._give_up(int(at[longest]), int(runs[longest]))
        every = self.config.loop.checkpoint_every
        if every and trainer.progress.epoch % every == 0:
            self._save(self.last_checkpoint)

    def _score(self, summary: EpochSummary) -> bool:
        """Evaluate; gives whether the state is the best so far."""
        offline = self.trainer.offline
        if offline is not None and offline.held_out is not None:
            # No score: values that agree with one another are not a policy that is good.
            summary.extra |= held_out_figures(self.trainer, offline.held_out)
        if self._validate is None:
            return False
        found = self._validate()
        summary.score, summary.validation = found.score, found.metrics
        summary.extra.update(found.figures)
        progress, least = self.trainer.progress, self.config.loop.early_stop_min_delta
        best = progress.best_score
        if math.isfinite(summary.score) and (best is None or summary.score > best + least):
            progress.best_score, progress.epochs_without_gain = summary.score, 0
            return True
        progress.epochs_without_gain += 1
        return False


def _collected(finished: FinishedEpisodes) -> dict[str, float]:
    """The epoch's episodes in numbers; nothing but their count where none ended."""
    count = len(finished.returns)
    if not count:
        return {"episodes": 0.0}
    return {
        "episodes": float(count),
        "episode_return": float(finished.returns.mean()),
        "episode_length": float(finished.lengths.mean()),
    }


def _named(arrays: list[str]) -> str:
    return f"{', '.join(arrays)} {'holds' if len(arrays) == 1 else 'hold'} NaN or infinity"
