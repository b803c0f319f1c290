"""Hindsight relabelling of drawn rows, and their n-step returns under the goal that they then have.

A row's state is goal-conditioned: `achieved` is the first of `width` columns of the state that say
what was achieved; other columns hold the goal. With chance `share` a drawn row is given as its goal
what was achieved after a donor row (Andrychowicz et al. 2017, sections 3.3 and 4.5), by `strategy`:

- `Strategy.FUTURE`: a row from this one to its episode's last, each as likely;
- `Strategy.FINAL`: the last row of its episode;
- `Strategy.RANDOM`: the row at another position of the batch, each as likely.

``donor`` is that row, or -1 where the row keeps its goal: `gather_relabelled` puts what was
achieved there in the goal's columns. The ring is as `nstep_assemble` has it. The rows of an episode
are those from the drawn one forward in its lane that hold its episode id; an INVALID row is not one
of them, nor is any after it, after a TERMINATED or TRUNCATED row, or from the write head on (taken
modulo T). A drawn row that is INVALID or outside the filled part keeps its goal, and so does one
whose random donor is, or that has the batch to itself.

A row that keeps its goal has the return, discount and last row of `nstep_assemble`. Under another
goal the reward and the termination of each row are computed anew: where what was achieved after it
equals the goal, in every column, the reward is 0 and the return ends, terminated; else the reward
is -1. The recorded termination is of the goal before, so it only ends the rows of the episode, and
the bootstrap stays: ``discount = gamma^steps``.

Draws are of Philox at (position in the batch, the step's RNG counter, HINDSIGHT): the first uniform
is compared with `share`, the second picks the donor. Sums are in float64, rounded to float32 once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, Flag, StreamTag
from onegraph.kernels.common.philox import philox_uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64


class Strategy(IntEnum):
    """Where the goal of a relabelled row comes from."""

    FUTURE = 1
    FINAL = 2
    RANDOM = 3


@kernel(
    per="warp",
    work="n",
    block=128,
    sparse_reads={
        "reward": "n*n_step",
        "flags": "n*n_step",
        "episode": "n",
        "next_state": "n*width",
    },
    index="in i32",
    reward="in f32",
    flags="in u8",
    episode="in i64",
    next_state="in f32",
    counters="in i64",
    last="out i32",
    donor="out i32",
    ret="out f32",
    discount="out f32",
    n="i32",
    lanes="i32",
    slots="i32",
    padded="i32",
    n_step="i32",
    gamma="f64",
    achieved="i32",
    width="i32",
    strategy="i32",
    share="f64",
    seed="u64",
)
def hindsight_assemble(
    index: NDArray[np.int32],
    reward: F32,
    flags: NDArray[np.uint8],
    episode: I64,
    next_state: F32,
    counters: I64,
    last: NDArray[np.int32],
    donor: NDArray[np.int32],
    ret: F32,
    discount: F32,
    n: int,
    lanes: int,
    slots: int,
    padded: int,
    n_step: int,
    gamma: float,
    achieved: int,
    width: int,
    strategy: int,
    share: float,
    seed: int,
) -> None:
    """`index` [n] to `last`, `donor`, `ret` and `discount` [n].

    `reward`, `flags` and `episode` are [N], `next_state` is [N, Sp].
    """
    rows = slots * lanes
    filled = min(int(counters[Counter.FILLED]), rows)
    drawn = index[:n].astype(np.int64)
    exists = (drawn >= 0) & (drawn < filled)
    start = np.where(exists, drawn, 0)
    # Only as far as the return reaches, where no donor is taken from further on.
    limit = n_step if strategy == Strategy.RANDOM else slots
    reach = np.minimum(
        (int(counters[Counter.HEAD]) - start // lanes - 1) % slots + 1, limit
    )  # rows before the write head
    span = _rows_of_episode(start, np.where(exists, reach, 0), flags, episode, lanes, rows)

    uniform = philox_uniform(seed, np.arange(n), counters[Counter.RNG], StreamTag.HINDSIGHT)
    relabelled = (uniform[:, 0] < share) & (span > 0)
    source = start
    if strategy == Strategy.RANDOM:
        source, usable = _another_of_batch(drawn, uniform[:, 1], flags, filled)
        relabelled &= usable
    else:
        k = np.maximum(span - 1, 0)
        if strategy == Strategy.FUTURE:
            k = np.minimum((uniform[:, 1] * span).astype(np.int64), k)
        source = (start + k * lanes) % rows
    after = next_state[: rows * padded].reshape(rows, padded)[:, achieved : achieved + width]
    goal = after[np.where(relabelled, source, 0)]

    total = np.zeros(n)
    end = start.copy()
    steps = np.zeros(n, np.int64)
    terminated = np.zeros(n, np.bool_)
    taken = np.minimum(span, n_step)
    power = 1.0
    powers = [power]
    for step in range(int(taken.max(initial=0))):
        row = (start + step * lanes) % rows
        going = (step < taken) & ~terminated
        there = relabelled & (after[row] == goal).all(axis=1)
        gained = np.where(relabelled, np.where(there, 0.0, -1.0), reward[row])
        # Only where the row is taken: what other rows hold need not be finite.
        with np.errstate(invalid="ignore", over="ignore"):
            total += power * np.where(going, gained, 0.0)
        power *= gamma
        powers.append(power)
        end = np.where(going, row, end)
        steps += going
        terminated |= going & there
    recorded = ~relabelled & (flags[end] & Flag.TERMINATED != 0)
    carried = np.where((steps > 0) & ~terminated & ~recorded, np.array(powers)[steps], 0.0)
    with np.errstate(over="ignore"):
        ret[:n] = total
        discount[:n] = carried
    last[:n] = np.where(exists, end, -1)
    donor[:n] = np.where(relabelled, source, -1)


def _rows_of_episode(
    start: I64, reach: I64, flags: NDArray[np.uint8], episode: I64, lanes: int, rows: int
) -> I64:
    """How many of the `reach` rows from each `start` on are of its episode."""
    span = np.zeros(start.size, np.int64)
    going = reach > 0
    for k in range(int(reach.max(initial=0))):
        row = (start + k * lanes) % rows
        going &= (k < reach) & (flags[row] & Flag.INVALID == 0) & (episode[row] == episode[start])
        if not going.any():
            break
        span += going
        going &= flags[row] & (Flag.TERMINATED | Flag.TRUNCATED) == 0
    return span


def _another_of_batch(
    drawn: I64, uniform: F64, flags: NDArray[np.uint8], filled: int
) -> tuple[I64, NDArray[np.bool_]]:
    """A row of another position for each of the batch, and whether it can be a donor."""
    n = drawn.size
    if n < 2:
        return np.zeros(n, np.int64), np.zeros(n, np.bool_)
    other = np.minimum((uniform * (n - 1)).astype(np.int64), n - 2)
    other += other >= np.arange(n)
    row = drawn[other]
    inside = (row >= 0) & (row < filled)
    row = np.where(inside, row, 0)
    return row, inside & (flags[row] & Flag.INVALID == 0)
