"""Names for the elements of the small state arrays that host and device share.

``layout.cuh`` gives the same numbers to the kernels; a test holds the two to each other.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

#: Children of a node of the sum tree: one warp reads them in one go.
FAN_OUT = 32


class Counter(IntEnum):
    """Elements of ``counters`` (int64). The first eight are the learner's per-step counters."""

    ADAM_TRUNK = 0
    ADAM_SELECTIVITY = 1
    ADAM_DENOISE = 2
    ADAM_IQL = 3
    ADAM_IQL_LOW = 4
    ADAM_IQN = 5
    ADAM_ATTENTION = 6
    RNG = 7
    WARM_UP = 8
    COLLECT = 9
    HEAD = 10
    FILLED = 11
    SKIPPED = 12
    SKIPPED_IN_A_ROW = 13


COUNTERS = 16
ADAM_GROUPS = 7


class Schedule(IntEnum):
    """Elements of ``schedule`` (float64): the values that the present step uses.

    From ``BIAS`` on stand two Adam bias corrections a group: ``1 - beta1^t`` and ``1 - beta2^t``.
    """

    TAU = 0
    BETA = 1
    EPSILON = 2
    LEARNING_RATE = 3
    BIAS = 4


SCHEDULES = 24


class ScheduleParam(IntEnum):
    """Elements of ``schedule_params`` (float64): four of (kind, start, end, steps), then more."""

    TAU = 0
    BETA = 4
    EPSILON = 8
    LEARNING_RATE = 12
    WARM_UP_STEPS = 16
    ADAM_BETA1 = 17
    ADAM_BETA2 = 18


SCHEDULE_PARAMS = 20


class ScheduleKind(IntEnum):
    """How a schedule goes from its start to its end over its steps."""

    CONSTANT = 0
    LINEAR = 1
    COSINE = 2


class Flag(IntFlag):
    """Bits of a replay row's flags (uint8)."""

    TERMINATED = 1
    TRUNCATED = 2
    INVALID = 4


class Diagnostic(IntEnum):
    """Elements of ``diagnostics`` (int64): things that went wrong and were dealt with."""

    NONFINITE_TD = 0
    STALE_UPDATE = 1
    INVALID_ROW = 2


DIAGNOSTICS = 8


class LoopOrder(IntEnum):
    """Elements of ``loop_order`` (int64, pinned): what the host asks of a loop of rounds.

    ``UNTIL`` is the learning step, counted from the run's first, at which it ends; ``STOP`` ends it
    after the round that it is in; ``LIMIT`` skipped steps in a row end it, of those after step
    ``BEGUN`` (0: never).
    """

    UNTIL = 0
    STOP = 1
    LIMIT = 2
    BEGUN = 3


LOOP_ORDER = 4


class LoopReport(IntEnum):
    """Elements of ``loop_report`` (int64, pinned): how far the loop has come, and why it ended."""

    LEARNS = 0
    COLLECTS = 1
    ENDING = 2


LOOP_REPORT = 3


class LoopEnding(IntEnum):
    """Why a loop of rounds ended."""

    RUNNING = 0
    REACHED = 1
    STOPPED = 2
    NONFINITE = 3


class StreamTag(IntEnum):
    """Third word of the Philox counter: keeps the draws of different uses apart."""

    SAMPLE = 1
    ACT = 2
    RESET = 3
    INIT = 4
    DEPTH = 5
    TAU = 6
    NOISE = 7
    DENOISE = 8
    HINDSIGHT = 9
    TOSS = 10
