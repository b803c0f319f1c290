"""One interface over the implementations that the replay contract holds to the same table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import (
    COUNTERS,
    SCHEDULE_PARAMS,
    SCHEDULES,
    Counter,
    Schedule,
)
from onegraph.kernels.fused import draw_batch, write_back
from onegraph.kernels.replay import raw_weights, refresh_drawn, refresh_slot, refresh_touched, tree
from onegraph.trainer.legacy.replay import (
    PrioritizedHostReplay,
    ReplaySpec,
    UniformHostReplay,
    advance_head,
    allocate,
)

if TYPE_CHECKING:
    from onegraph.kernels.device import Device, DeviceArray

Array = NDArray[Any]

#: What `insert_rows` calls the arrays of the ring.
RING = {
    "state": "replay_state",
    "ring_action": "replay_action",
    "ring_reward": "replay_reward",
    "ring_flags": "replay_flags",
    "next_state": "replay_next_state",
    "ring_episode": "replay_episode",
    "generation": "replay_generation",
    "leaves": "replay_leaves",
    "diagnostics": "diagnostics",
}


class Replay(Protocol):
    """A replay with its counters; arrays are read and written by name."""

    spec: ReplaySpec
    counters: Array

    def read(self, name: str) -> Array: ...
    def write(self, name: str, values: Array) -> None: ...
    def insert(self, *columns: Array) -> None: ...
    def locate(self, thresholds: Array) -> tuple[Array, Array]: ...
    def draw(self, n: int) -> tuple[Array, Array]: ...
    def assemble(self, index: Array) -> tuple[Array, Array, Array]: ...
    def weights(self, index: Array, beta: float) -> Array: ...
    def update(self, index: Array, generation: Array, td: Array) -> None: ...
    def gather(self, name: str, index: Array) -> Array: ...


def _schedule(beta: float) -> Array:
    schedule = np.full(SCHEDULES, np.nan)
    schedule[Schedule.BETA] = beta
    return schedule


class KernelReplay:
    """The kernels, on a device; every launch is capped at `max_blocks`."""

    def __init__(self, device: Device, spec: ReplaySpec, max_blocks: int = 4096) -> None:
        self.device, self.spec, self.max_blocks = device, spec, max_blocks
        self.counters = np.zeros(COUNTERS, np.int64)
        self.arrays = {k: device.upload(v, k) for k, v in allocate(spec).items()}
        nodes = self.arrays["replay_nodes"]
        self.total = nodes.view(nodes.size - 1, (1,))

    def _run(self, kernel: str, **args: Array | DeviceArray | float) -> None:
        args = {
            k: self.device.upload(v, k) if isinstance(v, np.ndarray) else v for k, v in args.items()
        }
        self.device.run(kernel, max_blocks=self.max_blocks, **args)

    def _out(self, n: int, dtype: str) -> DeviceArray:
        return self.device.allocate((n,), dtype, "out")

    def read(self, name: str) -> Array:
        return self.arrays[name].to_host_checkpoint()

    def write(self, name: str, values: Array) -> None:
        self.device.copy_htod(self.arrays[name], values)

    def insert(self, *columns: Array) -> None:
        names = ("obs", "action", "reward", "step_flags", "next_obs", "episode")
        spec = self.spec
        self._run(
            "insert_rows",
            **dict(zip(names, columns, strict=True)),
            counters=self.counters,
            max_leaf=self.arrays["replay_max_leaf"],
            **{k: self.arrays[v] for k, v in RING.items()},
            lanes=spec.lanes,
            padded=spec.padded,
            slots=spec.slots,
        )
        self._refresh_inserted(
            leaves=self.arrays["replay_leaves"],
            nodes=self.arrays["replay_nodes"],
            counters=self.counters,
            lanes=spec.lanes,
            slots=spec.slots,
            leaf_count=spec.capacity,
        )
        advance_head(self.counters, spec)

    def _refresh_inserted(self, **args: Array | DeviceArray | int) -> None:
        self._run("refresh_inserted", **args)

    def _descend(self, thresholds: DeviceArray, n: int) -> tuple[Array, Array]:
        index, generation = self._out(n, "i32"), self._out(n, "u32")
        self._run(
            "tree_descend",
            leaves=self.arrays["replay_leaves"],
            nodes=self.arrays["replay_nodes"],
            thresholds=thresholds,
            generation=self.arrays["replay_generation"],
            index=index,
            sampled_generation=generation,
            n=n,
            leaf_count=self.spec.capacity,
        )
        result = index.to_host_checkpoint(), generation.to_host_checkpoint()
        self.device.free(index)
        self.device.free(generation)
        return result

    def locate(self, thresholds: Array) -> tuple[Array, Array]:
        uploaded = self.device.upload(np.asarray(thresholds, np.float64))
        result = self._descend(uploaded, uploaded.size)
        self.device.free(uploaded)
        return result

    def draw(self, n: int) -> tuple[Array, Array]:
        thresholds = self._out(n, "f64")
        self._run(
            "philox_thresholds",
            total=self.total,
            counters=self.counters,
            thresholds=thresholds,
            n=n,
            seed=self.spec.seed,
            strata=n * int(self.spec.stratified),
        )
        result = self._descend(thresholds, n)
        self.device.free(thresholds)
        return result

    def assemble(self, index: Array) -> tuple[Array, Array, Array]:
        n, spec = index.size, self.spec
        out = {"last": self._out(n, "i32"), "ret": self._out(n, "f32")}
        out["discount"] = self._out(n, "f32")
        self._run(
            "nstep_assemble",
            index=index,
            reward=self.arrays["replay_reward"],
            flags=self.arrays["replay_flags"],
            counters=self.counters,
            **out,
            n=n,
            lanes=spec.lanes,
            slots=spec.slots,
            n_step=spec.n_step,
            gamma=spec.gamma,
        )
        last, ret, discount = (out[k].to_host_checkpoint() for k in ("last", "ret", "discount"))
        return last, ret, discount

    def weights(self, index: Array, beta: float) -> Array:
        weights = self._out(index.size, "f32")
        self._run(
            "importance_weights",
            leaves=self.arrays["replay_leaves"],
            total=self.total,
            index=index,
            counters=self.counters,
            schedule=_schedule(beta),
            weights=weights,
            n=index.size,
            leaf_count=self.spec.capacity,
        )
        return weights.to_host_checkpoint()

    def update(self, index: Array, generation: Array, td: Array) -> None:
        self._run(
            "update_priorities",
            td=td,
            index=index,
            sampled_generation=generation,
            **{
                k: self.arrays[f"replay_{k}"]
                for k in ("generation", "leaves", "nodes", "owner", "max_leaf")
            },
            diagnostics=self.arrays["diagnostics"],
            n=index.size,
            leaf_count=self.spec.capacity,
            alpha=self.spec.alpha,
            eps=self.spec.eps,
        )

    def gather(self, name: str, index: Array) -> Array:
        wide = self.spec.padded
        dst = self._out(index.size * wide, "f32")
        self._run(
            "gather_rows",
            src=self.arrays[name],
            index=index,
            dst=dst,
            n=index.size,
            width=wide,
            src_stride=wide,
            dst_stride=wide,
            rows=self.spec.capacity,
        )
        return dst.to_host_checkpoint().reshape(index.size, wide)


class SpreadReplay(KernelReplay):
    """The kernels that large batches and many lanes have in the place of one-block ones."""

    def _refresh_inserted(self, **args: Array | DeviceArray | int) -> None:
        for level in refresh_drawn.levels(self.spec.capacity):
            groups = refresh_slot.groups_over(self.spec.lanes, level)
            self._run("refresh_slot", **args, level=level, groups=groups)

    def weights(self, index: Array, beta: float) -> Array:
        n, parts = index.size, raw_weights.parts_of(index.size)
        raw, largest = self._out(n, "f64"), self._out(parts, "f64")
        weights = self._out(n, "f32")
        self._run(
            "raw_weights",
            leaves=self.arrays["replay_leaves"],
            total=self.total,
            index=index,
            counters=self.counters,
            schedule=_schedule(beta),
            raw=raw,
            largest=largest,
            n=n,
            leaf_count=self.spec.capacity,
            parts=parts,
        )
        self._run("scale_weights", raw=raw, largest=largest, weights=weights, n=n, parts=parts)
        return weights.to_host_checkpoint()

    def update(self, index: Array, generation: Array, td: Array) -> None:
        n, capacity = index.size, self.spec.capacity
        leaf = self._out(n, "f32")
        held = {k: self.arrays[f"replay_{k}"] for k in ("leaves", "owner")}
        self._run(
            "claim_priorities",
            td=td,
            index=index,
            sampled_generation=generation,
            generation=self.arrays["replay_generation"],
            leaf=leaf,
            owner=held["owner"],
            diagnostics=self.arrays["diagnostics"],
            n=n,
            leaf_count=capacity,
            alpha=self.spec.alpha,
            eps=self.spec.eps,
        )
        self._run(
            "write_priorities",
            leaf=leaf,
            index=index,
            **held,
            max_leaf=self.arrays["replay_max_leaf"],
            n=n,
            leaf_count=capacity,
        )
        args = {
            "leaves": held["leaves"],
            "nodes": self.arrays["replay_nodes"],
            "index": index,
            "leaf_count": capacity,
        }
        alone = refresh_touched.pays(capacity, n)
        if alone:
            self._run("refresh_touched", **args, n=n, lanes=n * refresh_touched.LANES)
        for level in refresh_drawn.levels(capacity, 2 if alone else 1):
            groups = min(n, tree.group_count(capacity, level))
            self._run("refresh_drawn", **args, level=level, groups=groups)


class FusedReplay(KernelReplay):
    """The kernels that draw a batch and write its priorities back in a launch each.

    `each` rows are drawn by a warp; `form` is `write_back`'s, or that which suits the sizes.
    """

    def __init__(
        self,
        device: Device,
        spec: ReplaySpec,
        max_blocks: int = 4096,
        each: int = 1,
        form: write_back.Form | None = None,
    ) -> None:
        super().__init__(device, spec, max_blocks)
        self.each, self.form = each, form
        self.kept = {
            name: device.upload(np.zeros(size, dtype), name)
            for name, size, dtype in (
                ("barrier", 1, np.uint32),
                ("ticket", 1, np.uint32),
                ("draw_barrier", 1, np.uint32),
                ("largest", 2, np.float64),
            )
        }

    def draw(self, n: int) -> tuple[Array, Array]:
        spec = self.spec
        names = ("index", "sampled_generation", "action", "ret", "discount", "weights", "raw")
        dtypes = ("i32", "u32", "i32", "f32", "f32", "f32", "f64")
        out = {name: self._out(n, dtype) for name, dtype in zip(names, dtypes, strict=True)}
        out |= {name: self._out(n * spec.padded, "f32") for name in ("state", "next_state")}
        columns = ("state", "next_state", "action", "reward", "flags")
        self._run(
            "draw_batch",
            **{name: self.arrays[f"replay_{name}"] for name in ("leaves", "nodes", "generation")},
            **{f"ring_{name}": self.arrays[f"replay_{name}"] for name in columns},
            counters=self.counters,  # a copy of them: the contract's do not advance
            schedule=_schedule(0.4),
            params=np.zeros(SCHEDULE_PARAMS),
            skip=np.zeros(1, np.int32),
            **out,
            largest=self.kept["largest"],
            barrier=self.kept["draw_barrier"],
            n=n,
            leaf_count=spec.capacity,
            width=spec.padded,
            padded=spec.padded,
            lanes=spec.lanes,
            slots=spec.slots,
            n_step=spec.n_step,
            gamma=spec.gamma,
            seed=spec.seed,
            strata=n * int(spec.stratified),
            each=self.each,
            blocks=draw_batch.blocks_of(n, self.each),
        )
        drawn = out["index"].to_host_checkpoint(), out["sampled_generation"].to_host_checkpoint()
        for array in out.values():
            self.device.free(array)
        return drawn

    def update(self, index: Array, generation: Array, td: Array) -> None:
        n, capacity = index.size, self.spec.capacity
        self._run(
            "write_back",
            td=td,
            index=index,
            sampled_generation=generation,
            leaf=self._out(n, "f32"),
            **{
                k: self.arrays[f"replay_{k}"]
                for k in ("generation", "leaves", "nodes", "owner", "max_leaf")
            },
            diagnostics=self.arrays["diagnostics"],
            **{k: self.kept[k] for k in ("barrier", "ticket")},
            n=n,
            leaf_count=capacity,
            alpha=self.spec.alpha,
            eps=self.spec.eps,
            form=int(write_back.form_of(n, capacity) if self.form is None else self.form),
            blocks=write_back.blocks_of(n, capacity),
        )


class LegacyReplay:
    """The CPU replay of stage 0: uniform where alpha is 0, else prioritized."""

    def __init__(self, spec: ReplaySpec) -> None:
        self.spec = spec
        self.counters = np.zeros(COUNTERS, np.int64)
        self.arrays = allocate(spec)
        kind = UniformHostReplay if spec.alpha == 0.0 else PrioritizedHostReplay
        self.replay = kind(spec, self.arrays)

    def read(self, name: str) -> Array:
        return self.arrays[name].copy()

    def write(self, name: str, values: Array) -> None:
        self.arrays[name][...] = values

    def insert(self, *columns: Array) -> None:
        self.replay.insert(*columns, self.counters)
        advance_head(self.counters, self.spec)

    def locate(self, thresholds: Array) -> tuple[Array, Array]:
        index = self.replay.locate(np.asarray(thresholds, np.float64))
        return index, self.arrays["replay_generation"][index]

    def draw(self, n: int) -> tuple[Array, Array]:
        return self.replay.draw(n, self.counters)

    def assemble(self, index: Array) -> tuple[Array, Array, Array]:
        return self.replay.assemble(index, self.counters)

    def weights(self, index: Array, beta: float) -> Array:
        return self.replay.weights(index, self.counters, _schedule(beta))

    def update(self, index: Array, generation: Array, td: Array) -> None:
        self.replay.update(index, generation, td)

    def gather(self, name: str, index: Array) -> Array:
        return self.arrays[name][index]


def insert_slots(
    replay: Replay,
    reward: list[float] | Array,
    flags: list[int] | Array | None = None,
    states: Array | None = None,
) -> None:
    """Insert one slot for each ``lanes`` of `reward`; a row's state is its count, by default."""
    spec = replay.spec
    rewards = np.asarray(reward, np.float32).reshape(-1, spec.lanes)
    marks = np.zeros(rewards.shape, np.uint8) if flags is None else np.asarray(flags, np.uint8)
    marks = marks.reshape(rewards.shape)
    for slot in range(len(rewards)):
        count = slot * spec.lanes + np.arange(spec.lanes, dtype=np.float32)
        obs = np.repeat(count, spec.padded).reshape(spec.lanes, spec.padded)
        if states is not None:
            obs = states[slot].astype(np.float32)
        replay.insert(
            obs,
            np.arange(spec.lanes, dtype=np.int32),
            rewards[slot],
            marks[slot],
            obs + np.float32(0.5),
            np.full(spec.lanes, slot, np.int64),
        )


def set_leaves(replay: Replay, leaves: list[float] | Array) -> None:
    """Fill the replay with rows of these priorities; the rest of its leaves are 0."""
    spec = replay.spec
    values = np.zeros(spec.capacity, np.float32)
    values[: len(leaves)] = leaves
    nodes = np.zeros(tree.node_count(spec.capacity))
    tree.rebuild(values, nodes)
    replay.write("replay_leaves", values)
    replay.write("replay_nodes", nodes)
    replay.counters[Counter.FILLED] = len(leaves)
    replay.counters[Counter.HEAD] = len(leaves) // spec.lanes % spec.slots


def root(replay: Replay) -> float:
    return float(replay.read("replay_nodes")[-1])
