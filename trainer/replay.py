"""The GPU-resident prioritized replay: its buffers, and the ops that sample, update and insert.

A sampled batch is a `GpuBatch` of device buffers. There is no choice of replay kind here: the
buffer is held directly, and what it can do is `sample`, `update` and `insert`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from onegraph.kernels.common.layout import DIAGNOSTICS
from onegraph.kernels.replay import (
    importance_weights,
    raw_weights,
    refresh_drawn,
    refresh_inserted,
    refresh_slot,
    refresh_touched,
    sample_batch,
    update_priorities,
)
from onegraph.kernels.replay.tree import group_count
from onegraph.stages.program import (
    Alloc,
    Buffer,
    Copy,
    Free,
    Host,
    HostArrays,
    Launch,
    Op,
    Ref,
    Space,
)
from onegraph.trainer.hindsight import Relabelling
from onegraph.trainer.shapes import Shapes


@dataclass(frozen=True)
class GpuBatch:
    """Names of the device buffers that hold a sampled batch of B transitions."""

    states: str = "s_tm1"  # [B, Sp]
    actions: str = "a_tm1"  # [B] i32
    rewards: str = "r_t"  # [B] n-step sums
    discounts: str = "discount_t"  # [B] gamma^k (1 - terminated)
    next_states: str = "s_t"  # [B, Sp] bootstrap states
    weights: str = "weight"  # [B]
    indices: str = "index"  # [B] i32
    generations: str = "generation"  # [B] u32, of the slots when they were sampled


BATCH = GpuBatch()

#: Arguments of a launch.
Args = dict[str, Ref | int | float]

#: Where a kernel that draws a batch finds the ring and the step's counters.
RING_ARGS: Mapping[str, Ref] = {
    "leaves": Ref("replay_leaves"),
    "nodes": Ref("replay_nodes"),
    "generation": Ref("replay_generation"),
    "ring_state": Ref("replay_state"),
    "ring_next_state": Ref("replay_next_state"),
    "ring_action": Ref("replay_action"),
    "ring_reward": Ref("replay_reward"),
    "ring_flags": Ref("replay_flags"),
    "counters": Ref("counters"),
    "schedule": Ref("schedule"),
}

#: Where it leaves the batch.
DRAWN_ARGS: Mapping[str, Ref] = {
    "index": Ref(BATCH.indices),
    "sampled_generation": Ref(BATCH.generations),
    "state": Ref(BATCH.states),
    "next_state": Ref(BATCH.next_states),
    "action": Ref(BATCH.actions),
    "ret": Ref(BATCH.rewards),
    "discount": Ref(BATCH.discounts),
}

#: The rows that were drawn, as what writes their priorities asks for them.
DRAWN_ROWS: Mapping[str, Ref] = {
    "index": Ref(BATCH.indices),
    "sampled_generation": Ref(BATCH.generations),
    "generation": Ref("replay_generation"),
}

#: What a kernel that writes the priorities changes.
PRIORITY_ARGS: Mapping[str, Ref] = {
    "leaves": Ref("replay_leaves"),
    "nodes": Ref("replay_nodes"),
    "owner": Ref("replay_owner"),
    "max_leaf": Ref("replay_max_leaf"),
    "diagnostics": Ref("diagnostics"),
}


def draw_sizes(shapes: Shapes) -> Args:
    """Sizes of a draw, and how its returns are summed and its rows drawn."""
    config = shapes.config
    return {
        "n": shapes.draws,
        "leaf_count": shapes.capacity,
        "width": shapes.width,
        "padded": shapes.padded,
        "lanes": shapes.lanes,
        "slots": shapes.slots,
        "n_step": config.replay.n_step,
        "gamma": config.learn.gamma,
        "seed": config.seed,
        "strata": shapes.strata,
    }


def relabelling_args(hindsight: Relabelling) -> Args:
    """What a draw under the goals of hindsight takes beside."""
    return {
        "ring_episode": Ref("replay_episode"),
        "achieved": hindsight.goal.achieved,
        "goal": hindsight.goal.desired,
        "goal_width": hindsight.goal.width,
        "strategy": int(hindsight.strategy),
        "share": hindsight.share,
    }


def priority_sizes(shapes: Shapes) -> Args:
    """Sizes of the priorities' update, and how they follow from TD errors."""
    replay = shapes.config.replay
    return {
        "n": shapes.batch,
        "leaf_count": shapes.capacity,
        "alpha": replay.alpha,
        "eps": replay.eps,
    }


def ring_buffers(shapes: Shapes, space: Space) -> tuple[Buffer, ...]:
    """The replay's arrays, in device memory or on the host, under the same names."""
    n, sp = shapes.capacity, shapes.padded

    def buffer(name: str, dims: tuple[int, ...], dtype: str) -> Buffer:
        return Buffer(f"replay_{name}", dims, dtype, space, persistent=True)

    return (
        buffer("state", (n, sp), "f32"),
        buffer("action", (n,), "i32"),
        buffer("reward", (n,), "f32"),
        buffer("flags", (n,), "u8"),
        buffer("next_state", (n, sp), "f32"),
        buffer("episode", (n,), "i64"),
        buffer("generation", (n,), "u32"),
        buffer("leaves", (n,), "f32"),
        Buffer("replay_nodes", (shapes.nodes,), "f64", space),
        Buffer("replay_owner", (n,), "i32", space, initial=lambda: np.full(n, -1, np.int32)),
        Buffer(
            "replay_max_leaf",
            (1,),
            "f32",
            space,
            initial=lambda: np.ones(1, np.float32),
            persistent=True,
        ),
        Buffer("diagnostics", (DIAGNOSTICS,), "i64", space, persistent=True),
    )


def batch_buffers(shapes: Shapes) -> tuple[Buffer, ...]:
    """The batch that the learner reads."""
    b, sp = shapes.draws, shapes.padded
    return (
        Buffer(BATCH.states, (b, sp), "f32"),
        Buffer(BATCH.actions, (b,), "i32"),
        Buffer(BATCH.rewards, (b,), "f32"),
        Buffer(BATCH.discounts, (b,), "f32"),
        Buffer(BATCH.next_states, (b, sp), "f32"),
        Buffer(BATCH.weights, (b,), "f32"),
    )


def draw_buffers(shapes: Shapes) -> tuple[Buffer, ...]:
    """Indices of the batch, of the rows that its returns end at, and of those that give goals."""
    b = shapes.draws
    return (
        Buffer(BATCH.indices, (b,), "i32"),
        Buffer(BATCH.generations, (b,), "u32"),
        Buffer("last_index", (b,), "i32"),
        Buffer("donor", (b,), "i32"),
    )


class DeviceReplay:
    """Ops of the replay on the device, in the forms of the stages that use it.

    Args:
        shapes: sizes and constants.
        hindsight: how sampled rows are given other goals; ``None`` if they keep their own.
    """

    def __init__(self, shapes: Shapes, hindsight: Relabelling | None = None) -> None:
        self.shapes, self.hindsight = shapes, hindsight

    @property
    def _root(self) -> Ref:
        return Ref("replay_nodes", self.shapes.nodes - 1, 1)

    # ---------------------------------------------------------------- drawing

    def philox_thresholds(self) -> Op:
        """B thresholds from the total in device memory."""
        return Launch(
            "philox_thresholds",
            {
                "total": self._root,
                "counters": Ref("counters"),
                "thresholds": Ref("thresholds"),
                "n": self.shapes.draws,
                "seed": self.shapes.config.seed,
                "strata": self.shapes.strata,
            },
        )

    def host_thresholds(self) -> tuple[tuple[Op, ...], tuple[Op, ...], tuple[Buffer, ...]]:
        """Thresholds from the host's generator: ops before the draw, after it, and buffers.

        The total is read back, the thresholds computed and uploaded into scratch that lives for
        the step, with the total as their last element.
        """
        from onegraph.kernels.replay.philox_thresholds import philox_thresholds

        shapes, b = self.shapes, self.shapes.draws

        def compute(arrays: HostArrays) -> None:
            philox_thresholds(
                total=arrays["h_total"],
                counters=arrays["h_counters"],
                thresholds=arrays["h_thresholds"][:b],
                n=b,
                seed=shapes.config.seed,
                strata=shapes.strata,
            )
            arrays["h_thresholds"][b] = arrays["h_total"][0]

        before: tuple[Op, ...] = (
            Copy(Ref("h_total"), self._root, "dtoh"),
            Host("thresholds", compute, ("h_total", "h_counters"), ("h_thresholds",)),
            Alloc("thresholds"),
            Copy(Ref("thresholds"), Ref("h_thresholds"), "htod"),
        )
        buffers = (
            Buffer("h_total", (1,), "f64", "host"),
            Buffer("h_thresholds", (b + 1,), "f64", "host"),
            Buffer("thresholds", (b + 1,), "f64", transient=True),
        )
        return before, (Free("thresholds"),), buffers

    def descend(self) -> Op:
        """From thresholds to indices, and the generations of their slots."""
        return Launch(
            "tree_descend",
            {
                "leaves": Ref("replay_leaves"),
                "nodes": Ref("replay_nodes"),
                "thresholds": Ref("thresholds"),
                "generation": Ref("replay_generation"),
                "index": Ref(BATCH.indices),
                "sampled_generation": Ref(BATCH.generations),
                "n": self.shapes.draws,
                "leaf_count": self.shapes.capacity,
            },
        )

    def assemble(self, returns: str, discounts: str) -> Op:
        """n-step returns, discounts and last rows; with hindsight also the rows that give goals."""
        config = self.shapes.config
        args: Args = {
            "index": Ref(BATCH.indices),
            "reward": Ref("replay_reward"),
            "flags": Ref("replay_flags"),
            "counters": Ref("counters"),
            "last": Ref("last_index"),
            "ret": Ref(returns),
            "discount": Ref(discounts),
            "n": self.shapes.draws,
            "lanes": self.shapes.lanes,
            "slots": self.shapes.slots,
            "n_step": config.replay.n_step,
            "gamma": config.learn.gamma,
        }
        if self.hindsight is None:
            return Launch("nstep_assemble", args)
        args |= {
            "episode": Ref("replay_episode"),
            "next_state": Ref("replay_next_state"),
            "donor": Ref("donor"),
            "padded": self.shapes.padded,
            "achieved": self.hindsight.goal.achieved,
            "width": self.hindsight.goal.width,
            "strategy": int(self.hindsight.strategy),
            "share": self.hindsight.share,
            "seed": config.seed,
        }
        return Launch("hindsight_assemble", args)

    def gather_rows(self, source: str, index: str, target: str, stride: int) -> Op:
        """Rows of a [N, Sp] column of the ring, into rows of `stride` floats.

        With hindsight they have the goals that they are given.
        """
        args: Args = {
            "src": Ref(source),
            "index": Ref(index),
            "dst": Ref(target),
            "n": self.shapes.draws,
            "width": self.shapes.width,
            "src_stride": self.shapes.padded,
            "dst_stride": stride,
            "rows": self.shapes.capacity,
        }
        if self.hindsight is None:
            return Launch("gather_rows", args)
        args |= {
            "next_state": Ref("replay_next_state"),
            "donor": Ref("donor"),
            "achieved": self.hindsight.goal.achieved,
            "goal": self.hindsight.goal.desired,
            "goal_width": self.hindsight.goal.width,
        }
        return Launch("gather_relabelled", args)

    def gather_actions(self, target: str) -> Op:
        """Actions of the batch."""
        return Launch(
            "gather_i32",
            {
                "src": Ref("replay_action"),
                "index": Ref(BATCH.indices),
                "dst": Ref(target),
                "n": self.shapes.draws,
                "rows": self.shapes.capacity,
            },
        )

    @property
    def weighs_at_once(self) -> bool:
        """Whether one block weighs the batch."""
        return self.shapes.draws <= importance_weights.AT_ONCE

    def weights(self, total: Ref, target: str) -> tuple[Op, ...]:
        """Importance weights, given where the priority total stands."""
        b = self.shapes.draws
        reads: Args = {
            "leaves": Ref("replay_leaves"),
            "total": total,
            "index": Ref(BATCH.indices),
            "counters": Ref("counters"),
            "schedule": Ref("schedule"),
        }
        sizes = {"n": b, "leaf_count": self.shapes.capacity}
        if self.weighs_at_once:
            return (Launch("importance_weights", {**reads, "weights": Ref(target), **sizes}),)
        parts = raw_weights.parts_of(b)
        raw = {"raw": Ref("raw_weight"), "largest": Ref("largest_weight")}
        return (
            Launch("raw_weights", {**reads, **raw, **sizes, "parts": parts}),
            Launch("scale_weights", {**raw, "weights": Ref(target), "n": b, "parts": parts}),
        )

    def weight_buffers(self) -> tuple[Buffer, ...]:
        """What `weights` needs beside the batch."""
        b = self.shapes.draws
        if self.weighs_at_once:
            return ()
        return (
            Buffer("raw_weight", (b,), "f64"),
            Buffer("largest_weight", (raw_weights.parts_of(b),), "f64"),
        )

    def sample_through_copies(self, total: Ref) -> tuple[tuple[Op, ...], tuple[Buffer, ...]]:
        """Gather into sample buffers, copy those to the trainer's, pad: stages 1 and 2."""
        b, s = self.shapes.draws, self.shapes.width
        ops: list[Op] = [
            self.assemble("sample_r_t", "sample_discount_t"),
            self.gather_rows("replay_state", BATCH.indices, "sample_s_tm1", s),
            self.gather_rows("replay_next_state", "last_index", "sample_s_t", s),
            self.gather_actions("sample_a_tm1"),
            *self.weights(total, "sample_weight"),
        ]
        copies = {
            BATCH.actions: "sample_a_tm1",
            BATCH.rewards: "sample_r_t",
            BATCH.discounts: "sample_discount_t",
            BATCH.weights: "sample_weight",
            "raw_s_tm1": "sample_s_tm1",
            "raw_s_t": "sample_s_t",
        }
        ops += [Copy(Ref(dst), Ref(src), "dtod") for dst, src in copies.items()]
        ops += [pad_rows(self.shapes, name) for name in (BATCH.states, BATCH.next_states)]
        scratch = (
            Buffer("sample_a_tm1", (b,), "i32"),
            Buffer("sample_r_t", (b,), "f32"),
            Buffer("sample_discount_t", (b,), "f32"),
            Buffer("sample_weight", (b,), "f32"),
            Buffer("sample_s_tm1", (b, s), "f32"),
            Buffer("sample_s_t", (b, s), "f32"),
            *raw_buffers(self.shapes),
            *self.weight_buffers(),
        )
        return tuple(ops), scratch

    def sample_in_place(self) -> tuple[tuple[Op, ...], tuple[Buffer, ...]]:
        """Draw, gather straight into the trainer's padded buffers and weigh: stage 4.

        One kernel does all of it, and weighs a small batch too.
        """
        shapes = self.shapes
        args: Args = {
            **RING_ARGS,
            **DRAWN_ARGS,
            "weights": Ref(BATCH.weights),
            "ticket": Ref("sample_ticket"),
            **draw_sizes(shapes),
            "weigh": int(self.weighs_at_once),
        }
        kernel = "sample_batch"
        if self.hindsight is None:
            each = sample_batch.rows_each(shapes.draws, shapes.config.replay.n_step)
            args |= {"each": each, "warps": sample_batch.warps_of(shapes.draws, each)}
        else:
            kernel = "sample_relabelled"
            args |= relabelling_args(self.hindsight)
        rest = () if self.weighs_at_once else self.weights(self._root, BATCH.weights)
        return (Launch(kernel, args), *rest), (ticket("sample_ticket"), *self.weight_buffers())

    def sample_in_steps(self) -> tuple[tuple[Op, ...], tuple[Buffer, ...]]:
        """`sample_in_place` by a kernel for each part, for what has to come between two of them."""
        sp = self.shapes.padded
        ops = (
            self.philox_thresholds(),
            self.descend(),
            self.assemble(BATCH.rewards, BATCH.discounts),
            self.gather_rows("replay_state", BATCH.indices, BATCH.states, sp),
            self.gather_rows("replay_next_state", "last_index", BATCH.next_states, sp),
            self.gather_actions(BATCH.actions),
            *self.weights(self._root, BATCH.weights),
        )
        return ops, (Buffer("thresholds", (self.shapes.draws,), "f64"), *self.weight_buffers())

    @property
    def total(self) -> Ref:
        """Where the priority total stands on the device."""
        return self._root

    # ---------------------------------------------------------------- updating

    def update(self) -> tuple[tuple[Op, ...], tuple[Buffer, ...]]:
        """New leaves from the batch's TD errors, and the touched part of the tree.

        One block takes a small batch; a large one is spread over the device, part by part.
        """
        b, capacity = self.shapes.batch, self.shapes.capacity
        changed = PRIORITY_ARGS
        errors: Args = {
            "td": Ref("td"),
            **DRAWN_ROWS,
            "owner": changed["owner"],
            "diagnostics": changed["diagnostics"],
            **priority_sizes(self.shapes),
        }
        tree = {name: changed[name] for name in ("leaves", "nodes")}
        max_leaf = changed["max_leaf"]
        if b <= update_priorities.AT_ONCE:
            return (Launch("update_priorities", {**errors, **tree, "max_leaf": max_leaf}),), ()
        index = DRAWN_ROWS["index"]
        return (
            Launch("claim_priorities", {**errors, "leaf": Ref("new_leaf")}),
            Launch(
                "write_priorities",
                {
                    "leaf": Ref("new_leaf"),
                    "index": index,
                    "owner": changed["owner"],
                    "leaves": changed["leaves"],
                    "max_leaf": max_leaf,
                    "n": b,
                    "leaf_count": capacity,
                },
            ),
            *self._refresh_drawn({**tree, "index": index, "leaf_count": capacity}),
        ), (Buffer("new_leaf", (b,), "f32"),)

    def _refresh_drawn(self, args: Args) -> Iterator[Op]:
        """The nodes above a large batch's leaves, up to the root."""
        b, capacity = self.shapes.batch, self.shapes.capacity
        alone = refresh_touched.pays(capacity, b)
        if alone:
            yield Launch("refresh_touched", {**args, "n": b, "lanes": b * refresh_touched.LANES})
        for level in refresh_drawn.levels(capacity, 2 if alone else 1):
            groups = min(b, group_count(capacity, level))
            yield Launch("refresh_drawn", {**args, "level": level, "groups": groups})

    def insert(self) -> tuple[Op, ...]:
        """One row a lane at the write head, and the touched part of the tree."""
        shapes = self.shapes
        return (
            Launch(
                "insert_rows",
                {
                    "obs": Ref("env_obs_tm1"),
                    "action": Ref("env_action"),
                    "reward": Ref("env_reward"),
                    "step_flags": Ref("env_flags"),
                    "next_obs": Ref("env_obs_t"),
                    "episode": Ref("env_episode"),
                    "counters": Ref("counters"),
                    "max_leaf": Ref("replay_max_leaf"),
                    "state": Ref("replay_state"),
                    "ring_action": Ref("replay_action"),
                    "ring_reward": Ref("replay_reward"),
                    "ring_flags": Ref("replay_flags"),
                    "next_state": Ref("replay_next_state"),
                    "ring_episode": Ref("replay_episode"),
                    "generation": Ref("replay_generation"),
                    "leaves": Ref("replay_leaves"),
                    "diagnostics": Ref("diagnostics"),
                    "lanes": shapes.lanes,
                    "padded": shapes.padded,
                    "slots": shapes.slots,
                },
            ),
            *self._refresh_inserted(),
        )

    def _refresh_inserted(self) -> tuple[Op, ...]:
        shapes = self.shapes
        args: Args = {
            "leaves": Ref("replay_leaves"),
            "nodes": Ref("replay_nodes"),
            "counters": Ref("counters"),
            "lanes": shapes.lanes,
            "slots": shapes.slots,
            "leaf_count": shapes.capacity,
        }
        if shapes.lanes <= refresh_inserted.AT_ONCE:
            return (Launch("refresh_inserted", args),)
        return tuple(
            Launch(
                "refresh_slot",
                {**args, "level": level, "groups": refresh_slot.groups_over(shapes.lanes, level)},
            )
            for level in refresh_drawn.levels(shapes.capacity)
        )


def ticket(name: str) -> Buffer:
    """Counts the blocks that are done, for a kernel whose last block does more; 0 between steps."""
    return Buffer(name, (1,), "u32", initial=lambda: np.zeros(1, np.uint32))


def raw_buffers(shapes: Shapes) -> tuple[Buffer, ...]:
    """Unpadded states of the batch, as an upload or a copy leaves them."""
    b, s = shapes.draws, shapes.width
    return Buffer("raw_s_tm1", (b, s), "f32"), Buffer("raw_s_t", (b, s), "f32")


def pad_rows(shapes: Shapes, name: str) -> Op:
    """``raw_name`` [B, S] into `name` [B, Sp], with zeros behind each row."""
    return Launch(
        "pad_rows",
        {
            "src": Ref(f"raw_{name}"),
            "dst": Ref(name),
            "n": shapes.draws,
            "width": shapes.width,
            "padded": shapes.padded,
        },
    )
