"""Rings of goal-conditioned rows, and hindsight on them by a loop over one row at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import COUNTERS, Counter, Flag, StreamTag
from onegraph.kernels.common.philox import philox_uniform
from onegraph.kernels.replay.hindsight_assemble import Strategy

Array = NDArray[Any]
ENDED = Flag.TERMINATED | Flag.TRUNCATED


@dataclass
class Ring:
    """T slots of E lanes; the states of Sp columns hold the achieved goal from `achieved` on."""

    lanes: int
    slots: int
    head: int
    filled: int
    flags: Array
    episode: Array
    reward: Array
    next_state: Array
    width: int
    achieved: int = 0
    n_step: int = 1
    gamma: float = 0.5
    strategy: Strategy = Strategy.FUTURE
    share: float = 0.8
    seed: int = 0
    step: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def padded(self) -> int:
        return int(self.next_state.shape[1])

    @property
    def counters(self) -> Array:
        counters = np.full(COUNTERS, -99, np.int64)
        counters[Counter.HEAD], counters[Counter.FILLED] = self.head, self.filled
        counters[Counter.RNG] = self.step
        return counters

    def arguments(self, index: Array) -> dict[str, Any]:
        """Of `hindsight_assemble`, for a draw of these rows."""
        n = len(index)
        return {
            "index": np.asarray(index, np.int32),
            "reward": self.reward,
            "flags": self.flags,
            "episode": self.episode,
            "next_state": self.next_state,
            "counters": self.counters,
            "last": n,
            "donor": n,
            "ret": n,
            "discount": n,
            "n": n,
            "lanes": self.lanes,
            "slots": self.slots,
            "padded": self.padded,
            "n_step": self.n_step,
            "gamma": self.gamma,
            "achieved": self.achieved,
            "width": self.width,
            "strategy": int(self.strategy),
            "share": self.share,
            "seed": self.seed,
        }


def random_ring(
    rng: np.random.Generator,
    *,
    lanes: int,
    slots: int,
    turns: int,
    padded: int = 8,
    width: int = 2,
    ends: float = 0.3,
    invalid: float = 0.05,
    **changes: Any,
) -> Ring:
    """A ring after `turns` slots were written: more than `slots` wrap around.

    What was never written is nonsense. Achieved goals are of few values, so that they are met.
    """
    rows = lanes * slots
    ring = Ring(
        lanes=lanes,
        slots=slots,
        head=turns % slots,
        filled=min(turns, slots) * lanes,
        flags=np.full(rows, 0xFF, np.uint8),
        episode=np.full(rows, -7, np.int64),
        reward=np.full(rows, np.nan, np.float32),
        next_state=np.full((rows, padded), np.nan, np.float32),
        width=width,
        **changes,
    )
    present = np.arange(lanes)
    for turn in range(turns):
        at = slice(turn % slots * lanes, (turn % slots + 1) * lanes)
        ended = rng.random(lanes) < ends
        ring.flags[at] = np.where(ended, rng.choice([1, 2], lanes), 0)
        ring.flags[at] |= np.where(rng.random(lanes) < invalid, 4, 0).astype(np.uint8)
        ring.episode[at] = present
        ring.reward[at] = rng.normal(size=lanes)
        ring.next_state[at] = rng.integers(0, 2, (lanes, padded))
        present = np.where(ended, present + lanes, present)
    return ring


def by_hand(ring: Ring, index: Array) -> dict[str, list[Any]]:
    """What `hindsight_assemble` is to give, one row after the other."""
    n, rows = len(index), ring.lanes * ring.slots
    drawn = philox_uniform(ring.seed, np.arange(n), ring.step, StreamTag.HINDSIGHT).tolist()
    out: dict[str, list[Any]] = {"last": [], "donor": [], "ret": [], "discount": []}

    def achieved(row: int) -> list[float]:
        values: list[float] = ring.next_state[row, ring.achieved :][: ring.width].tolist()
        return values

    def valid(row: int) -> bool:
        return 0 <= row < min(ring.filled, rows) and not ring.flags[row] & Flag.INVALID

    for i, start in enumerate(int(j) for j in index):
        episode, row = [], start
        while valid(row) and (not episode or row // ring.lanes != ring.head):
            if ring.episode[row] != ring.episode[start]:
                break
            episode.append(row)
            if ring.flags[row] & ENDED:
                break
            row = (row + ring.lanes) % rows
        donor = -1
        if episode and drawn[i][0] < ring.share:
            if ring.strategy == Strategy.FUTURE:
                donor = episode[int(drawn[i][1] * len(episode))]
            elif ring.strategy == Strategy.FINAL:
                donor = episode[-1]
            elif n > 1:
                others = [int(index[j]) for j in range(n) if j != i]
                donor = others[int(drawn[i][1] * len(others))]
                donor = donor if valid(donor) else -1
        total, power, carried = 0.0, 1.0, 0.0
        last = start if 0 <= start < min(ring.filled, rows) else -1
        for row in episode[: ring.n_step]:
            if donor < 0:
                reward, terminated = float(ring.reward[row]), ring.flags[row] & Flag.TERMINATED
            else:
                terminated = achieved(row) == achieved(donor)
                reward = 0.0 if terminated else -1.0
            total, power, last = total + power * reward, power * ring.gamma, row
            carried = 0.0 if terminated else power
            if terminated:
                break
        out["last"].append(last)
        out["donor"].append(donor)
        out["ret"].append(np.float32(total))
        out["discount"].append(np.float32(carried))
    return out
