"""n-step returns of drawn rows, assembled from the ring when they are sampled.

The ring is time-major: row = slot * E + lane, and row i's successor in its lane is row i + E,
modulo N = T * E. From row i forward, up to `n_step` rows of the lane are taken:

- a row that is INVALID is not taken, and nothing after it;
- after a TERMINATED or TRUNCATED row nothing more is taken;
- a row at the write head (``counters[HEAD]``) is not taken: it is the oldest row, or not yet
  written. Slots fill in order, so this also keeps out of the unfilled part.

Then ``ret = sum of gamma^k * reward[k]``, ``discount = gamma^steps * (1 - terminated)``, and
``last`` is the row whose next state is the bootstrap state (Sutton & Barto 2018, section 7.1; the
discount carries termination, as in rlax). Truncation keeps the bootstrap. gamma^k is by repeated
multiplication in float64; each result is rounded to float32 once.

A draw that takes no row (its own row is INVALID) has ``ret`` 0 and ``discount`` 0, and is its own
``last``; one outside the filled part has ``last`` -1, which the gathers answer with zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, Flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, I64


@kernel(
    work="n",
    sparse_reads={"reward": "n*n_step", "flags": "n*n_step"},
    index="in i32",
    reward="in f32",
    flags="in u8",
    counters="in i64",
    last="out i32",
    ret="out f32",
    discount="out f32",
    n="i32",
    lanes="i32",
    slots="i32",
    n_step="i32",
    gamma="f64",
)
def nstep_assemble(
    index: NDArray[np.int32],
    reward: F32,
    flags: NDArray[np.uint8],
    counters: I64,
    last: NDArray[np.int32],
    ret: F32,
    discount: F32,
    n: int,
    lanes: int,
    slots: int,
    n_step: int,
    gamma: float,
) -> None:
    """`index` [n] to `last`, `ret` and `discount` [n]; `reward` and `flags` are [N]."""
    head, filled = int(counters[Counter.HEAD]), int(counters[Counter.FILLED])
    rows = slots * lanes
    start = index[:n].astype(np.int64)
    exists = (start >= 0) & (start < min(filled, rows))
    row = np.where(exists, start, 0)
    end = row.copy()
    total = np.zeros(n)
    terminated = np.zeros(n, bool)
    steps = np.zeros(n, np.int64)
    going = exists.copy()
    power = 1.0
    powers = [power]
    for step in range(n_step):
        row_flags = flags[row]
        going &= (row_flags & Flag.INVALID) == 0
        if not going.any():
            break
        # Only where the row is taken: what other rows hold need not be finite.
        with np.errstate(invalid="ignore", over="ignore"):
            total += power * np.where(going, reward[row], 0.0).astype(np.float64)
        power *= gamma
        powers.append(power)
        end = np.where(going, row, end)
        steps = np.where(going, step + 1, steps)
        terminated |= going & ((row_flags & Flag.TERMINATED) != 0)
        going &= (row_flags & (Flag.TERMINATED | Flag.TRUNCATED)) == 0
        row += lanes
        row[row >= rows] -= rows
        going &= row // lanes != head
    carried = np.where((steps > 0) & ~terminated, np.array(powers)[steps], 0.0)
    with np.errstate(over="ignore"):
        ret[:n] = total
        discount[:n] = carried
    last[:n] = np.where(exists, end, -1)
