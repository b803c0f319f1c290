"""What stage 0 does on the host: the ops of each group before any stage has replaced them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from onegraph.kernels.common.layout import COUNTERS, DIAGNOSTICS, SCHEDULE_PARAMS, SCHEDULES
from onegraph.kernels.learner.act import act
from onegraph.kernels.learner.advance_counters import advance_counters, initial_schedule
from onegraph.kernels.learner.publish import RECORD, publish
from onegraph.stages.program import Alloc, Buffer, Copy, Fragment, Free, Host, HostArrays, Op, Ref
from onegraph.trainer.hindsight import Relabelling
from onegraph.trainer.legacy.replay import PrioritizedHostReplay, ReplaySpec, UniformHostReplay
from onegraph.trainer.replay import BATCH, batch_buffers, pad_rows, raw_buffers, ring_buffers
from onegraph.trainer.shapes import Shapes

#: Arrays of the host replay that its ops touch.
_RING = (
    "replay_state",
    "replay_action",
    "replay_reward",
    "replay_flags",
    "replay_next_state",
    "replay_episode",
    "replay_generation",
    "replay_leaves",
    "replay_nodes",
    "replay_owner",
    "replay_max_leaf",
    "diagnostics",
)


class LegacyReplay:
    """Dispatches on the replay kind at run time, as the loop did before stage 1.

    The replay is made on first use, over the arrays that the workspace holds by then.
    """

    def __init__(self, shapes: Shapes, hindsight: Relabelling | None = None) -> None:
        config = shapes.config
        self.spec = ReplaySpec(
            lanes=shapes.lanes,
            slots=shapes.slots,
            padded=shapes.padded,
            seed=config.seed,
            stratified=config.replay.stratified,
            batches=shapes.draws // shapes.batch,
            n_step=config.replay.n_step,
            gamma=config.learn.gamma,
            alpha=config.replay.alpha,
            eps=config.replay.eps,
            hindsight=hindsight,
        )
        self._made: PrioritizedHostReplay | None = None
        self._over: NDArray[Any] | None = None

    def forget(self) -> None:
        """Read the arrays anew at the next use: a restored state stands in them."""
        self._made = None

    def over(self, arrays: HostArrays) -> PrioritizedHostReplay:
        """The replay over these arrays."""
        if self._made is None or self._over is not arrays["replay_leaves"]:
            kind = UniformHostReplay if self.spec.alpha == 0.0 else PrioritizedHostReplay
            self._made = kind(self.spec, {name: arrays[name] for name in _RING})
            self._over = arrays["replay_leaves"]
        return self._made


class LegacyParts:
    """Stage 0's ops, group by group."""

    def __init__(self, shapes: Shapes, hindsight: Relabelling | None = None) -> None:
        self.shapes = shapes
        self.replay = LegacyReplay(shapes, hindsight)

    def state_buffers(self) -> tuple[Buffer, ...]:
        """Counters and schedules on the host, which the device's are uploaded from."""
        params = self.shapes.schedule_params()
        return (
            Buffer("h_counters", (COUNTERS,), "i64", "host"),
            Buffer(
                "h_schedule", (SCHEDULES,), "f64", "host", initial=lambda: initial_schedule(params)
            ),
            Buffer("h_params", (SCHEDULE_PARAMS,), "f64", "host", initial=lambda: params),
            Buffer("h_skip", (1,), "i32", "host"),
        )

    # ---------------------------------------------------------------- replay

    def sample(self) -> Fragment:
        """Draw and build the batch on the host, upload it into scratch, pad it with a kernel."""
        shapes = self.shapes
        b, s = shapes.draws, shapes.width
        uploads = {
            "raw_s_tm1": "h_s_tm1",
            "raw_s_t": "h_s_t",
            BATCH.actions: "h_a_tm1",
            BATCH.rewards: "h_r_t",
            BATCH.discounts: "h_discount_t",
            BATCH.weights: "h_weight",
        }

        def build(arrays: HostArrays) -> None:
            batch = self.replay.over(arrays).sample(b, arrays["h_counters"], arrays["h_schedule"])
            arrays["h_s_tm1"][...] = batch.states[:, :s]
            arrays["h_s_t"][...] = batch.next_states[:, :s]
            arrays["h_a_tm1"][...] = batch.actions
            arrays["h_r_t"][...] = batch.rewards
            arrays["h_discount_t"][...] = batch.discounts
            arrays["h_weight"][...] = batch.weights
            arrays[BATCH.indices][...] = batch.indices
            arrays[BATCH.generations][...] = batch.generations

        # The replay keeps the arrays that it is given, so each op hands them over for writing.
        written = (*uploads.values(), BATCH.indices, BATCH.generations, *_RING)
        scratch = ("raw_s_tm1", "raw_s_t")
        ops: tuple[Op, ...] = (
            Host("sample", build, ("h_counters", "h_schedule"), written),
            *(Alloc(name) for name in scratch),
            *(Copy(Ref(dst), Ref(src), "htod") for dst, src in uploads.items()),
            *(pad_rows(shapes, name) for name in (BATCH.states, BATCH.next_states)),
            *(Free(name) for name in scratch),
        )
        host = (
            Buffer("h_s_tm1", (b, s), "f32", "host"),
            Buffer("h_s_t", (b, s), "f32", "host"),
            Buffer("h_a_tm1", (b,), "i32", "host"),
            Buffer("h_r_t", (b,), "f32", "host"),
            Buffer("h_discount_t", (b,), "f32", "host"),
            Buffer("h_weight", (b,), "f32", "host"),
            Buffer(BATCH.indices, (b,), "i32", "host"),
            Buffer(BATCH.generations, (b,), "u32", "host"),
        )
        raw = tuple(Buffer(r.name, r.shape, r.dtype, transient=True) for r in raw_buffers(shapes))
        return Fragment(ops, (*host, *raw, *batch_buffers(shapes), *ring_buffers(shapes, "host")))

    def priorities(self) -> Fragment:
        """Read the TD errors back and update the tree on the host."""

        def update(arrays: HostArrays) -> None:
            replay = self.replay.over(arrays)
            n = arrays["h_td"].size  # a vaccine batch has no part in it
            replay.update(arrays[BATCH.indices][:n], arrays[BATCH.generations][:n], arrays["h_td"])

        return Fragment(
            (
                Copy(Ref("h_td"), Ref("td"), "dtoh"),
                Host(
                    "update_priorities",
                    update,
                    ("h_td", BATCH.indices, BATCH.generations),
                    _RING,
                ),
            ),
            (Buffer("h_td", (self.shapes.batch,), "f32", "host"),),
        )

    def insert(self) -> Fragment:
        """Read the lanes' transitions back and write them into the host's ring."""
        e, sp = self.shapes.lanes, self.shapes.padded
        columns = {
            "h_env_obs_tm1": ("env_obs_tm1", (e, sp), "f32"),
            "h_env_action": ("env_action", (e,), "i32"),
            "h_env_reward": ("env_reward", (e,), "f32"),
            "h_env_flags": ("env_flags", (e,), "u8"),
            "h_env_obs_t": ("env_obs_t", (e, sp), "f32"),
            "h_env_episode": ("env_episode", (e,), "i64"),
        }

        def insert(arrays: HostArrays) -> None:
            self.replay.over(arrays).insert(
                arrays["h_env_obs_tm1"],
                arrays["h_env_action"],
                arrays["h_env_reward"],
                arrays["h_env_flags"],
                arrays["h_env_obs_t"],
                arrays["h_env_episode"],
                arrays["h_counters"],
            )

        return Fragment(
            (
                *(Copy(Ref(h), Ref(source), "dtoh") for h, (source, _, _) in columns.items()),
                Host("insert", insert, (*columns, "h_counters"), _RING),
            ),
            (
                *(Buffer(h, shape, dtype, "host") for h, (_, shape, dtype) in columns.items()),
                *ring_buffers(self.shapes, "host"),
            ),
        )

    # ---------------------------------------------------------------- counters, acting, statistics

    def counters(self, program: int) -> Fragment:
        """Advance the counters on the host (0 for learn, 1 for collect) and upload what changed."""
        shapes = self.shapes

        def advance(arrays: HostArrays) -> None:
            advance_counters(
                counters=arrays["h_counters"],
                schedule=arrays["h_schedule"],
                params=arrays["h_params"],
                skip=arrays["h_skip"],
                program=program,
                lanes=shapes.lanes,
                slots=shapes.slots,
            )

        state = ("h_counters", "h_schedule")
        return Fragment(
            (
                Host("advance_counters", advance, (*state, "h_params", "h_skip"), state),
                Copy(Ref("counters"), Ref("h_counters"), "htod"),
                Copy(Ref("schedule"), Ref("h_schedule"), "htod"),
            ),
            self.state_buffers(),
        )

    def act(self, values: Ref) -> Fragment:
        """Read the action `values` [E, stride] back, choose on the host, upload the actions."""
        network, e = self.shapes.network, self.shapes.lanes
        seed = self.shapes.config.seed

        def choose(arrays: HostArrays) -> None:
            act(
                head=arrays["h_act_head"].reshape(-1),
                action=arrays["h_act_action"],
                counters=arrays["h_counters"],
                schedule=arrays["h_schedule"],
                n=e,
                actions=network.actions,
                stride=network.stride,
                seed=seed,
                greedy=int(network.noisy is not None),
            )

        return Fragment(
            (
                Copy(Ref("h_act_head"), values, "dtoh"),
                Host("act", choose, ("h_act_head", "h_counters", "h_schedule"), ("h_act_action",)),
                Copy(Ref("env_action"), Ref("h_act_action"), "htod"),
            ),
            (
                Buffer("h_act_head", (e, network.stride), "f32", "host"),
                Buffer("h_act_action", (e,), "i32", "host"),
                *self.state_buffers(),
            ),
        )

    def statistics(self, *, device_replay: bool) -> Fragment:
        """Read loss and gradient norm back through the deprecated `to_host`, and keep them.

        With the replay on the device its diagnostics are read back too.
        """
        ring = self.shapes.ring
        diagnostics = "h_diagnostics" if device_replay else "diagnostics"

        def keep(arrays: HostArrays) -> None:
            publish(
                stats=arrays["h_stats"],
                clip=arrays["h_clip"],
                counters=arrays["h_counters"],
                schedule=arrays["h_schedule"],
                diagnostics=arrays[diagnostics],
                skip=arrays["h_skip"],
                record=arrays["record"],
                history=arrays["history"].reshape(-1),
                ring=ring,
            )

        ops: list[Op] = [
            Copy(Ref("h_stats"), Ref("stats"), "dtoh", via="to_host"),
            Copy(Ref("h_clip"), Ref("clip"), "dtoh", via="to_host"),
            Copy(Ref("h_skip"), Ref("skip"), "dtoh"),
        ]
        buffers = [
            Buffer("h_stats", (4,), "f64", "host"),
            Buffer("h_clip", (2,), "f32", "host"),
            Buffer("record", (RECORD,), "f64", "host"),
            Buffer("history", (ring, RECORD), "f64", "host", persistent=True),
            *self.state_buffers(),
        ]
        if device_replay:
            ops.append(Copy(Ref("h_diagnostics"), Ref("diagnostics"), "dtoh"))
            buffers.append(Buffer("h_diagnostics", (DIAGNOSTICS,), "i64", "host"))
        reads = ("h_stats", "h_clip", "h_skip", "h_counters", "h_schedule", diagnostics)
        ops.append(Host("keep_statistics", keep, reads, ("record", "history")))
        return Fragment(tuple(ops), tuple(buffers))
