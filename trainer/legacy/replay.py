"""Replay on the CPU, as stage 0 has it: the ring and the sum tree are NumPy arrays.

The arrays have the names and the layout of the device ring, and the maths is the kernels' NumPy
twins', so that both draw the same rows with the same weights, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onegraph.kernels.common.layout import DIAGNOSTICS, Counter, Diagnostic
from onegraph.kernels.replay import tree
from onegraph.kernels.replay.gather_relabelled import gather_relabelled
from onegraph.kernels.replay.gather_rows import gather_rows
from onegraph.kernels.replay.hindsight_assemble import hindsight_assemble
from onegraph.kernels.replay.importance_weights import importance_weights
from onegraph.kernels.replay.insert_rows import insert_rows
from onegraph.kernels.replay.nstep_assemble import nstep_assemble
from onegraph.kernels.replay.philox_thresholds import philox_thresholds
from onegraph.kernels.replay.update_priorities import update_priorities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onegraph.trainer.hindsight import Relabelling

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
U32: TypeAlias = NDArray[np.uint32]
U8: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True)
class ReplaySpec:
    """Sizes and constants of a replay.

    Attributes:
        lanes: environments E; row = slot * E + lane.
        slots: time steps T that the ring holds; capacity N = T * E.
        padded: floats of a stored state, Sp.
        seed: key of the Philox draws.
        stratified: one draw in each of n equal parts of the total, or plain uniform draws.
        n_step: rows of an n-step return, at least 1.
        gamma: discount of one step.
        alpha, eps: priority = (|TD error| + eps)^alpha.
        batches: batches in a draw, each with its own strata.
        hindsight: how sampled rows are given other goals; ``None`` if they keep their own.
    """

    lanes: int
    slots: int
    padded: int
    seed: int = 0
    stratified: bool = True
    n_step: int = 1
    gamma: float = 0.99
    alpha: float = 0.6
    eps: float = 1e-6
    batches: int = 1
    hindsight: Relabelling | None = None

    @property
    def capacity(self) -> int:
        """Rows, N."""
        return self.lanes * self.slots


@dataclass(frozen=True)
class HostBatch:
    """A sampled batch on the host; B rows.

    Attributes:
        states, next_states: float32 [B, Sp]; the next state is the last row's of the n-step return.
        actions: int32 [B].
        rewards: float32 [B], n-step returns.
        discounts: float32 [B], gamma^k x (1 - terminated).
        weights: float32 [B].
        indices: int32 [B], row of the ring.
        generations: uint32 [B], of those rows when they were drawn.
        episodes: int64 [B].
    """

    states: F32
    actions: I32
    rewards: F32
    next_states: F32
    discounts: F32
    weights: F32
    indices: I32
    generations: U32
    episodes: I64

    @property
    def batch_size(self) -> int:
        """Rows, B."""
        return int(self.indices.size)


def allocate(spec: ReplaySpec) -> dict[str, NDArray[Any]]:
    """The arrays of an empty replay, by name."""
    n, wide = spec.capacity, (spec.capacity, spec.padded)
    return {
        "replay_state": np.zeros(wide, np.float32),
        "replay_action": np.zeros(n, np.int32),
        "replay_reward": np.zeros(n, np.float32),
        "replay_flags": np.zeros(n, np.uint8),
        "replay_next_state": np.zeros(wide, np.float32),
        "replay_episode": np.zeros(n, np.int64),
        "replay_generation": np.zeros(n, np.uint32),
        "replay_leaves": np.zeros(n, np.float32),
        "replay_nodes": np.zeros(tree.node_count(n), np.float64),
        "replay_owner": np.full(n, -1, np.int32),
        "replay_max_leaf": np.ones(1, np.float32),
        "diagnostics": np.zeros(DIAGNOSTICS, np.int64),
    }


class StalenessTracker:
    """Steps since each row's priority was last written."""

    def __init__(self, capacity: int) -> None:
        self._written = np.full(capacity, -1, np.int64)
        self._count = 0
        self._sum = 0

    def touch(self, indices: ArrayLike, step: int) -> None:
        """The priorities of the rows `indices` (repeats allowed) were written at `step`."""
        rows = np.unique(indices)
        before = self._written[rows]
        known = before >= 0
        self._sum += rows.size * step - int(before[known].sum())
        self._count += rows.size - int(np.count_nonzero(known))
        self._written[rows] = step

    def of(self, indices: ArrayLike, step: int) -> I64:
        """Steps since the rows `indices` were written, as of `step`; -1 for one never written."""
        before = self._written[np.asarray(indices)]
        return np.where(before >= 0, step - before, -1)

    def mean(self, step: int) -> float:
        """Mean staleness of all rows written so far, as of `step`; 0 if there are none."""
        return step - self._sum / self._count if self._count else 0.0


class PrioritizedHostReplay:
    """Prioritized replay on the CPU (Schaul et al. 2016).

    Args:
        spec: sizes and constants.
        arrays: as `allocate` makes them; used in place. An empty replay if left out.
    """

    def __init__(self, spec: ReplaySpec, arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        self.spec = spec
        held = allocate(spec) if arrays is None else arrays
        self.state: F32 = held["replay_state"].reshape(-1)
        self.action: I32 = held["replay_action"]
        self.reward: F32 = held["replay_reward"]
        self.flags: U8 = held["replay_flags"]
        self.next_state: F32 = held["replay_next_state"].reshape(-1)
        self.episode: I64 = held["replay_episode"]
        self.generation: U32 = held["replay_generation"]
        self.leaves: F32 = held["replay_leaves"]
        self.nodes: F64 = held["replay_nodes"]
        self.owner: I32 = held["replay_owner"]
        self.max_leaf: F32 = held["replay_max_leaf"]
        self.diagnostics: I64 = held["diagnostics"]
        self.staleness = StalenessTracker(spec.capacity)
        self._size = int(np.count_nonzero(self.generation))
        self._step = 0

    @property
    def size(self) -> int:
        """Rows written so far, at most the capacity."""
        return self._size

    @property
    def total(self) -> F64:
        """The sum of the priorities, float64 [1]."""
        return self.nodes[-1:]

    def can_sample(self, n: int) -> bool:
        """Whether `n` rows have been written and at least one may be drawn."""
        return self.size >= n and bool(self.total[0] > 0.0)

    # ---------------------------------------------------------------- in

    def insert(
        self,
        obs: F32,
        action: I32,
        reward: F32,
        flags: U8,
        next_obs: F32,
        episode: I64,
        counters: I64,
    ) -> None:
        """Write a transition of every lane at ``counters[HEAD]``; `advance_head` comes after.

        `obs` and `next_obs` are [E, Sp], the other columns [E], `counters` [16].
        """
        head = int(counters[Counter.HEAD])
        insert_rows(
            obs=obs.reshape(-1),
            action=action,
            reward=reward,
            step_flags=flags,
            next_obs=next_obs.reshape(-1),
            episode=episode,
            counters=counters,
            max_leaf=self.max_leaf,
            state=self.state,
            ring_action=self.action,
            ring_reward=self.reward,
            ring_flags=self.flags,
            next_state=self.next_state,
            ring_episode=self.episode,
            generation=self.generation,
            leaves=self.leaves,
            diagnostics=self.diagnostics,
            lanes=self.spec.lanes,
            padded=self.spec.padded,
            slots=self.spec.slots,
        )
        if 0 <= head < self.spec.slots:
            rows = np.arange(head * self.spec.lanes, (head + 1) * self.spec.lanes)
            self._size = max(self._size, int(rows[-1]) + 1)
            self._leaves_written(rows)
            self.staleness.touch(rows, self._step)

    def _leaves_written(self, rows: I64) -> None:
        tree.refresh(self.leaves, self.nodes, rows)

    # ---------------------------------------------------------------- out

    def draw(self, n: int, counters: I64) -> tuple[I32, U32]:
        """Indices [n] and the generations of their rows, for the step ``counters[RNG]``."""
        thresholds = np.empty(n)
        philox_thresholds(
            total=self.total,
            counters=counters,
            thresholds=thresholds,
            n=n,
            seed=self.spec.seed,
            strata=n // self.spec.batches if self.spec.stratified else 0,
        )
        indices = self.locate(thresholds)
        return indices, self.generation[indices]

    def locate(self, thresholds: F64) -> I32:
        """The row that each threshold in [0, total) falls on."""
        return tree.descend(self.leaves, self.nodes, thresholds).astype(np.int32)

    def relabel(self, indices: I32, counters: I64) -> tuple[I32, F32, F32, I32]:
        """As `assemble`, under the goals of hindsight, and the row that gives each its goal.

        That row is -1 for an index that keeps its goal, as all do without hindsight.
        """
        n, hindsight = indices.size, self.spec.hindsight
        if hindsight is None:
            return *self.assemble(indices, counters), np.full(n, -1, np.int32)
        last, donor = np.empty(n, np.int32), np.empty(n, np.int32)
        ret, discount = np.empty(n, np.float32), np.empty(n, np.float32)
        hindsight_assemble(
            index=indices,
            reward=self.reward,
            flags=self.flags,
            episode=self.episode,
            next_state=self.next_state,
            counters=counters,
            last=last,
            donor=donor,
            ret=ret,
            discount=discount,
            n=n,
            lanes=self.spec.lanes,
            slots=self.spec.slots,
            padded=self.spec.padded,
            n_step=self.spec.n_step,
            gamma=self.spec.gamma,
            achieved=hindsight.goal.achieved,
            width=hindsight.goal.width,
            strategy=hindsight.strategy,
            share=hindsight.share,
            seed=self.spec.seed,
        )
        return last, ret, discount, donor

    def assemble(self, indices: I32, counters: I64) -> tuple[I32, F32, F32]:
        """Last row, n-step return and discount of each index."""
        n = indices.size
        last, ret, discount = (
            np.empty(n, np.int32),
            np.empty(n, np.float32),
            np.empty(n, np.float32),
        )
        nstep_assemble(
            index=indices,
            reward=self.reward,
            flags=self.flags,
            counters=counters,
            last=last,
            ret=ret,
            discount=discount,
            n=n,
            lanes=self.spec.lanes,
            slots=self.spec.slots,
            n_step=self.spec.n_step,
            gamma=self.spec.gamma,
        )
        return last, ret, discount

    def weights(self, indices: I32, counters: I64, schedule: F64) -> F32:
        """Importance weights at ``schedule[BETA]``."""
        weights = np.empty(indices.size, np.float32)
        importance_weights(
            leaves=self.leaves,
            total=self.total,
            index=indices,
            counters=counters,
            schedule=schedule,
            weights=weights,
            n=indices.size,
            leaf_count=self.spec.capacity,
        )
        return weights

    def sample(self, n: int, counters: I64, schedule: F64) -> HostBatch:
        """Draw, assemble and gather a batch of `n`."""
        self._step = int(counters[Counter.RNG])
        indices, generations = self.draw(n, counters)
        last, returns, discounts, donors = self.relabel(indices, counters)
        return HostBatch(
            states=self._rows(self.state, indices, donors),
            actions=self.action[indices],
            rewards=returns,
            next_states=self._rows(self.next_state, last, donors),
            discounts=discounts,
            weights=self.weights(indices, counters, schedule),
            indices=indices,
            generations=generations,
            episodes=self.episode[indices],
        )

    def _rows(self, source: F32, indices: I32, donors: I32) -> F32:
        wide, hindsight = self.spec.padded, self.spec.hindsight
        out = np.empty((indices.size, wide), np.float32)
        if hindsight is None:
            gather_rows(
                src=source,
                index=indices,
                dst=out.reshape(-1),
                n=indices.size,
                width=wide,
                src_stride=wide,
                dst_stride=wide,
                rows=self.spec.capacity,
            )
            return out
        gather_relabelled(
            src=source,
            next_state=self.next_state,
            index=indices,
            donor=donors,
            dst=out.reshape(-1),
            n=indices.size,
            width=wide,
            src_stride=wide,
            dst_stride=wide,
            achieved=hindsight.goal.achieved,
            goal=hindsight.goal.desired,
            goal_width=hindsight.goal.width,
            rows=self.spec.capacity,
        )
        return out

    # ---------------------------------------------------------------- priorities

    def update(self, indices: I32, generations: U32, td: F32) -> None:
        """Write new priorities from the TD errors [B] of rows drawn earlier."""
        update_priorities(
            td=td,
            index=indices,
            sampled_generation=generations,
            generation=self.generation,
            leaves=self.leaves,
            nodes=self.nodes,
            owner=self.owner,
            max_leaf=self.max_leaf,
            diagnostics=self.diagnostics,
            n=indices.size,
            leaf_count=self.spec.capacity,
            alpha=self.spec.alpha,
            eps=self.spec.eps,
        )
        self._touch_updated(indices, generations, td)

    def _touch_updated(self, indices: I32, generations: U32, td: F32) -> None:
        written = self._fresh(indices, generations) & np.isfinite(td)
        self.staleness.touch(indices[written], self._step)

    def _inside(self, indices: I32) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = (indices >= 0) & (indices < self.spec.capacity)
        return inside

    def _fresh(self, indices: I32, generations: U32) -> NDArray[np.bool_]:
        inside = self._inside(indices)
        fresh: NDArray[np.bool_] = self.generation[np.where(inside, indices, 0)] == generations
        return inside & fresh


class UniformHostReplay(PrioritizedHostReplay):
    """Uniform replay on the CPU: what `PrioritizedHostReplay` is at alpha 0, without the tree.

    Every valid row has the leaf 1, so a prefix sum is a count and the row that a threshold falls on
    is the floor of it among the valid rows. The draws are those of the tree, bit for bit. The inner
    nodes are not kept up; `tree.rebuild` makes them from the leaves.

    Raises:
        ValueError: the spec's alpha is not 0.
    """

    def __init__(self, spec: ReplaySpec, arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        if spec.alpha != 0.0:
            message = f"uniform replay is alpha = 0, got alpha = {spec.alpha}"
            raise ValueError(message)
        super().__init__(spec, arrays)
        self._valid: I64 | None = None
        # A hole is a row that was written but may not be drawn.
        written = np.arange(spec.capacity) < self._size
        holes = (written & (self.leaves == 0.0)).reshape(spec.slots, spec.lanes)
        self._holes_of_slot: I64 = np.count_nonzero(holes, axis=1)
        self._holes = int(self._holes_of_slot.sum())

    @property
    def total(self) -> F64:
        """The number of rows that may be drawn, float64 [1]."""
        return np.array([self._size - self._holes], np.float64)

    def _leaves_written(self, rows: I64) -> None:
        self._valid = None
        slot = rows[0] // self.spec.lanes
        holes = int(np.count_nonzero(self.leaves[rows] == 0.0))
        self._holes += holes - int(self._holes_of_slot[slot])
        self._holes_of_slot[slot] = holes

    def locate(self, thresholds: F64) -> I32:
        """The valid row whose rank is the floor of each threshold."""
        at = np.nan_to_num(thresholds, nan=0.0, posinf=np.inf, neginf=-np.inf)
        rank = np.clip(np.floor(at), 0, max(self._size - self._holes - 1, 0)).astype(np.int32)
        if self._holes in (0, self._size):
            return rank
        if self._valid is None:
            self._valid = np.flatnonzero(self.leaves[: self._size] > 0.0)
        return self._valid[rank].astype(np.int32)

    def update(self, indices: I32, generations: U32, td: F32) -> None:
        """Count what a prioritized replay would; every priority stays 1."""
        fresh = self._fresh(indices, generations)
        stale = self._inside(indices) & ~fresh
        self.diagnostics[Diagnostic.STALE_UPDATE] += np.count_nonzero(stale)
        self.diagnostics[Diagnostic.NONFINITE_TD] += np.count_nonzero(fresh & ~np.isfinite(td))
        self._touch_updated(indices, generations, td)


def advance_head(counters: I64, spec: ReplaySpec) -> None:
    """Move ``counters[HEAD]`` to the next slot and count the rows just filled, in place."""
    counters[Counter.HEAD] = (counters[Counter.HEAD] + 1) % spec.slots
    counters[Counter.FILLED] = min(counters[Counter.FILLED] + spec.lanes, spec.capacity)
