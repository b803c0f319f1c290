"""The counters and scheduled values of a step, on the device: nothing of them is a host value.

``params`` (float64 [20], `ScheduleParam`) holds (kind, start, end, steps) for tau, beta, epsilon
and the learning rate, the warm-up steps of the learning rate, and Adam's two betas. They are data:
a changed schedule needs no new capture.

Program 0, a learning step, with k = ``counters[RNG]`` (from 0), before anything reads the values:

- the seven Adam counters t go up by one, **unless the previous step was skipped** (``skip[0]`` is
  still its flag: the clip factor of this step is yet to come). Its t was not used, so this step
  uses it; ``SKIPPED`` and ``SKIPPED_IN_A_ROW`` go up instead. The latter is 0 after a step that was
  not skipped. The caller zeroes ``skip`` before the first step.
- tau(k); lr(k), times min(1, (warm-up count + 1) / warm-up steps) while warming up;
- ``1 - beta^t`` of the new t, for each group, with the float32 value of each beta (see
  `adam_step`);
- beta(k + 1): sampling is the phase before this kernel, so step k has read beta(k), and this is the
  next step's;
- the RNG counter becomes k + 1, the warm-up count goes up to its limit.

Program 1, a collecting step, with c = ``counters[COLLECT]``, after everything has read the values:
the counter becomes c + 1, the write head moves one slot on in the ring of `slots`, the filled size
grows by `lanes` up to slots x lanes, and epsilon(c + 1) is ready for the next step. `slots` must be
at least 1. Any other program number changes nothing.

All float64, through `detmath`: the same bits on both sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import cospi64, pow64
from onegraph.kernels.common.layout import (
    ADAM_GROUPS,
    SCHEDULES,
    Counter,
    Schedule,
    ScheduleKind,
    ScheduleParam,
)

LEARN, COLLECT = 0, 1
_CORRECTIONS = slice(Schedule.BIAS, Schedule.BIAS + 2 * ADAM_GROUPS)


def schedule_value(kind: int, start: float, end: float, steps: float, k: int) -> float:
    """A schedule's value at step `k`.

    With x = k / steps (1 where `steps` is 0): `start` when constant; ``start + (end - start) x``
    when linear; ``end + (start - end) (1 + cos(pi x)) / 2`` when cosine; and exactly `end` from x =
    1 on.
    """
    if kind == ScheduleKind.CONSTANT:
        return float(start)
    x = k / steps if steps > 0.0 else 1.0
    if not x < 1.0:
        return float(end)
    if kind == ScheduleKind.LINEAR:
        return float(start + (end - start) * x)
    return float(end + ((start - end) * 0.5) * (1.0 + float(cospi64(x))))


def _scheduled(params: NDArray[np.float64], which: ScheduleParam, k: int) -> float:
    kind, start, end, steps = params[which : which + 4].tolist()
    return schedule_value(int(kind), start, end, steps, k)


def _learning_rate(params: NDArray[np.float64], k: int, warm: int) -> float:
    rate = _scheduled(params, ScheduleParam.LEARNING_RATE, k)
    warm_steps = int(params[ScheduleParam.WARM_UP_STEPS])
    return rate * ((warm + 1) / warm_steps) if warm < warm_steps else rate


def _bias_corrections(params: NDArray[np.float64], t: NDArray[np.int64]) -> NDArray[np.float64]:
    """``1 - beta1^t`` and ``1 - beta2^t`` for each group's t, interleaved: [2 x groups]."""
    first = ScheduleParam.ADAM_BETA1
    betas = params[first : first + 2].astype(np.float32).astype(np.float64)
    return (1.0 - pow64(betas, t[:, None].astype(np.float64))).reshape(-1)


def initial_schedule(params: NDArray[np.float64]) -> NDArray[np.float64]:
    """What ``schedule`` (float64 [24]) holds before the first step: all that step 0 reads.

    Those are beta(0) and epsilon(0), which nothing writes before they are read, and the values that
    step 0's `advance_counters` will write again: tau(0), the learning rate, the corrections of t =
    1.
    """
    schedule = np.zeros(SCHEDULES)
    schedule[Schedule.TAU] = _scheduled(params, ScheduleParam.TAU, 0)
    schedule[Schedule.BETA] = _scheduled(params, ScheduleParam.BETA, 0)
    schedule[Schedule.EPSILON] = _scheduled(params, ScheduleParam.EPSILON, 0)
    schedule[Schedule.LEARNING_RATE] = _learning_rate(params, 0, 0)
    schedule[_CORRECTIONS] = _bias_corrections(params, np.ones(ADAM_GROUPS, np.int64))
    return schedule


def reschedule(
    schedule: NDArray[np.float64], params: NDArray[np.float64], counters: NDArray[np.int64]
) -> None:
    """Put the next steps' beta and epsilon into `schedule` [24], after `params` [20] changed.

    They are the values that the step before has written ahead; the rest is written by the step that
    reads it.
    """
    k, c = int(counters[Counter.RNG]), int(counters[Counter.COLLECT])
    schedule[Schedule.BETA] = _scheduled(params, ScheduleParam.BETA, k)
    schedule[Schedule.EPSILON] = _scheduled(params, ScheduleParam.EPSILON, c)


@kernel(
    per="one",
    block=32,
    counters="inout i64",
    schedule="inout f64",
    params="in f64",
    skip="in i32",
    program="i32",
    lanes="i32",
    slots="i32",
)
def advance_counters(
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    params: NDArray[np.float64],
    skip: NDArray[np.int32],
    *,
    program: int,
    lanes: int,
    slots: int,
) -> None:
    """Advance `counters` [16] and `schedule` [24] by one step of the program."""
    if program == COLLECT:
        _advance_collect(counters, schedule, params, lanes, slots)
    elif program == LEARN:
        _advance_learn(counters, schedule, params, skipped=bool(skip[0]))


def _advance_collect(
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    params: NDArray[np.float64],
    lanes: int,
    slots: int,
) -> None:
    collected = int(counters[Counter.COLLECT]) + 1
    counters[Counter.COLLECT] = collected
    counters[Counter.HEAD] = (int(counters[Counter.HEAD]) + 1) % slots
    counters[Counter.FILLED] = min(int(counters[Counter.FILLED]) + lanes, slots * lanes)
    schedule[Schedule.EPSILON] = _scheduled(params, ScheduleParam.EPSILON, collected)


def _advance_learn(
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    params: NDArray[np.float64],
    *,
    skipped: bool,
) -> None:
    k, warm = int(counters[Counter.RNG]), int(counters[Counter.WARM_UP])
    adam: NDArray[Any] = counters[Counter.ADAM_TRUNK : ADAM_GROUPS]
    if skipped:
        counters[Counter.SKIPPED] += 1
        counters[Counter.SKIPPED_IN_A_ROW] += 1
    else:
        counters[Counter.SKIPPED_IN_A_ROW] = 0
        adam += 1
    schedule[_CORRECTIONS] = _bias_corrections(params, adam)
    schedule[Schedule.TAU] = _scheduled(params, ScheduleParam.TAU, k)
    schedule[Schedule.BETA] = _scheduled(params, ScheduleParam.BETA, k + 1)
    schedule[Schedule.LEARNING_RATE] = _learning_rate(params, k, warm)
    counters[Counter.RNG] = k + 1
    counters[Counter.WARM_UP] = min(warm + 1, int(params[ScheduleParam.WARM_UP_STEPS]))
