"""Write one transition of every lane into the ring, at the write head.

Row ``counters[HEAD] * E + lane`` takes lane's transition, and its generation goes up by one (a
drawn index can then be told from a slot overwritten since). The head itself is advanced elsewhere.
A new row's leaf is `max_leaf`, the largest seen so far, so that it is soon drawn.

A row whose reward, state or next state is not finite gets the flag INVALID and is counted
INVALID_ROW; its non-finite elements are stored as 0, so that nothing non-finite stands in the ring.
The leaf of an INVALID row, marked here or by the environment, is 0: it is never drawn, and no
n-step return crosses it. A head outside [0, slots) writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, Diagnostic, Flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, I64


@kernel(
    per="warp",
    work="lanes",
    obs="in f32",
    action="in i32",
    reward="in f32",
    step_flags="in u8",
    next_obs="in f32",
    episode="in i64",
    counters="in i64",
    max_leaf="in f32",
    state="inout f32",
    ring_action="inout i32",
    ring_reward="inout f32",
    ring_flags="inout u8",
    next_state="inout f32",
    ring_episode="inout i64",
    generation="inout u32",
    leaves="inout f32",
    diagnostics="inout i64",
    lanes="i32",
    padded="i32",
    slots="i32",
)
def insert_rows(
    obs: F32,
    action: NDArray[np.int32],
    reward: F32,
    step_flags: NDArray[np.uint8],
    next_obs: F32,
    episode: I64,
    counters: I64,
    max_leaf: F32,
    state: F32,
    ring_action: NDArray[np.int32],
    ring_reward: F32,
    ring_flags: NDArray[np.uint8],
    next_state: F32,
    ring_episode: I64,
    generation: NDArray[np.uint32],
    leaves: F32,
    diagnostics: I64,
    lanes: int,
    padded: int,
    slots: int,
) -> None:
    """`obs`, `next_obs` [E, Sp] and the rest [E] into the rows of slot HEAD."""
    head = int(counters[Counter.HEAD])
    if not 0 <= head < slots:
        return
    rows = slice(head * lanes, (head + 1) * lanes)
    values = slice(rows.start * padded, rows.stop * padded)
    broken = ~np.isfinite(reward[:lanes])
    for source, ring in ((obs, state), (next_obs, next_state)):
        finite = np.isfinite(source[: lanes * padded])
        ring[values] = np.where(finite, source[: lanes * padded], np.float32(0.0))
        broken |= ~finite.reshape(lanes, padded).all(axis=1)
    flags = step_flags[:lanes] | np.where(broken, np.uint8(Flag.INVALID), np.uint8(0))
    ring_action[rows] = action[:lanes]
    ring_reward[rows] = np.where(np.isfinite(reward[:lanes]), reward[:lanes], np.float32(0.0))
    ring_flags[rows] = flags
    ring_episode[rows] = episode[:lanes]
    generation[rows] += np.uint32(1)
    leaves[rows] = np.where(flags & Flag.INVALID, np.float32(0.0), max_leaf[0])
    diagnostics[Diagnostic.INVALID_ROW] += np.count_nonzero(broken)
