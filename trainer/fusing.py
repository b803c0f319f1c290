"""The learning step of a small network by three kernels: what stage 7 puts in the place of phases.

`draw_rows` draws the batch, `td_pass` goes from there to the gradients of the activations, and
`apply_step` from those to everything that a step leaves behind. There is code for networks of two
hidden layers and a plain or dueling head whose matrices fit the shared memory of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from onegraph.kernels.common.layout import DIAGNOSTICS
from onegraph.kernels.device.base import Device
from onegraph.kernels.fused import apply_step, td_pass
from onegraph.kernels.fused.td_pass import TwoLayers
from onegraph.kernels.replay import update_priorities
from onegraph.stages.program import Buffer, Fragment, Launch, Merge, Op, Ref
from onegraph.trainer.blocks.hidden import HiddenLayers
from onegraph.trainer.hindsight import Relabelling
from onegraph.trainer.network import QNetwork
from onegraph.trainer.regrouping import StepForm, regroupings
from onegraph.trainer.replay import (
    BATCH,
    DRAWN_ARGS,
    DRAWN_ROWS,
    PRIORITY_ARGS,
    RING_ARGS,
    draw_sizes,
    ticket,
)
from onegraph.trainer.shapes import Shapes

#: Blocks of a cluster: what every GPU with clusters forms, and half of it.
CLUSTERS = (8, 4)


class FusionError(ValueError):
    """The fused kernels that were asked for are not there; the message says which are."""


@dataclass(frozen=True)
class FusedStep:
    """Three kernels for a learning step.

    Attributes:
        shapes: sizes of the step.
        rows, cluster: of `td_pass`: rows that a cluster takes at a time, and its blocks.
    """

    shapes: Shapes
    rows: int
    cluster: int

    @property
    def name(self) -> str:
        """How it is printed, and asked for."""
        return f"rows{self.rows}-cluster{self.cluster}"

    @property
    def net(self) -> TwoLayers:
        """Widths of the network."""
        return _widths(self.shapes.network)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of `td_pass`."""
        return td_pass.shared_bytes(self.net, self.rows, self.cluster)

    def over(self, shapes: Shapes) -> FusedStep:
        """The same kernels for other sizes of the replay."""
        return replace(self, shapes=shapes)

    def fits(self, limit: int) -> bool:
        """Whether a block's share of the matrices fits `limit` bytes of shared memory."""
        return td_pass.fits(self.net, self.rows, self.cluster, limit)

    @property
    def _prioritises(self) -> bool:
        """Whether one block of the last kernel writes the priorities too."""
        return self.shapes.batch <= update_priorities.AT_ONCE

    def merges(self) -> tuple[Merge, ...]:
        """The step's phases in three runs, or with a large batch's priorities as they are."""
        last: tuple[str, ...] = (
            "aux",
            "post_aux",
            "adam_grad",
            "adam",
            "maintenance",
            "iql_modulate",
        )
        last += ("per_priority",) if self._prioritises else ()
        return (
            Merge(
                "draw_and_td",
                ("per_sample", "counters", "spectral", "forward", "ddqn"),
                Fragment((self._draw(), self._td_pass()), self._buffers()),
            ),
            Merge("apply_step", last, Fragment((self._apply(),), self._buffers())),
        )

    # ---------------------------------------------------------------- ops

    def _buffers(self) -> tuple[Buffer, ...]:
        """What the kernels hand to one another beside the buffers that the step has anyway."""
        b, net = self.shapes.batch, self.net
        widths = {"hidden0": net.width0, "hidden1": net.width1}
        widths |= {"grad0": net.width0, "grad1": net.width1, "grad_head": net.stride}
        tiles = apply_step.tiles_of(net.inputs, net.width0, net.width1, net.stride)
        return (
            *(Buffer(f"fused_{name}", (b, width), "f32") for name, width in widths.items()),
            Buffer("raw_weight", (b,), "f64"),
            Buffer("fused_squares", (tiles,), "f64"),
            ticket("fused_barrier"),
            Buffer("fused_diagnostics", (DIAGNOSTICS,), "i64"),
        )

    def _tensors(self) -> Mapping[str, int]:
        """Where the parameters stand."""
        layout = self.shapes.network.layout
        names = ("hidden.0", "hidden.1", "head")
        return {
            f"{kind}{i}": layout[f"{name}.{kind}"].offset
            for i, name in enumerate(names)
            for kind in ("weight", "bias")
        }

    def _draw(self) -> Op:
        return Launch(
            "draw_rows",
            {
                **RING_ARGS,
                **DRAWN_ARGS,
                "raw": Ref("raw_weight"),
                **draw_sizes(self.shapes),
            },
        )

    def _td_pass(self) -> Op:
        shapes, net, learn = self.shapes, self.net, self.shapes.config.learn
        network = shapes.network
        return Launch(
            "td_pass",
            {
                "state": Ref(BATCH.states),
                "next_state": Ref(BATCH.next_states),
                "theta": Ref("theta"),
                "target": Ref("theta_target"),
                "action": Ref(BATCH.actions),
                "ret": Ref(BATCH.rewards),
                "discount": Ref(BATCH.discounts),
                "raw": Ref("raw_weight"),
                "counters": Ref("counters"),
                "schedule": Ref("schedule"),
                "params": Ref("schedule_params"),
                "skip": Ref("skip"),
                "diagnostics": Ref("diagnostics"),
                "seen": Ref("fused_diagnostics"),
                "weights": Ref(BATCH.weights),
                "td": Ref("td"),
                "loss": Ref("loss"),
                "q_taken": Ref("q_taken"),
                "hidden0": Ref("fused_hidden0"),
                "hidden1": Ref("fused_hidden1"),
                "grad_head": Ref("fused_grad_head"),
                "grad1": Ref("fused_grad1"),
                "grad0": Ref("fused_grad0"),
                "n": shapes.batch,
                "inputs": net.inputs,
                "width0": net.width0,
                "width1": net.width1,
                "actions": network.actions,
                "dueling": int(network.dueling),
                "double_q": int(network.config.double),
                "mse": int(learn.loss == "mse"),
                "delta": learn.huber_delta,
                **self._tensors(),
                "rows": self.rows,
                "tiles": -(-shapes.batch // self.rows),
                "cluster": self.cluster,
                "shared_bytes": self.shared_bytes,
            },
        )

    def _apply(self) -> Op:
        shapes, net = self.shapes, self.net
        learn, replay = shapes.config.learn, shapes.config.replay
        return Launch(
            "apply_step",
            {
                "state": Ref(BATCH.states),
                "hidden0": Ref("fused_hidden0"),
                "hidden1": Ref("fused_hidden1"),
                "grad0": Ref("fused_grad0"),
                "grad1": Ref("fused_grad1"),
                "grad_head": Ref("fused_grad_head"),
                "theta": Ref("theta"),
                "m": Ref("adam_m"),
                "v": Ref("adam_v"),
                "target": Ref("theta_target"),
                "grad": Ref("grad"),
                "partial": Ref("fused_squares"),
                "barrier": Ref("fused_barrier"),
                "clip": Ref("clip"),
                "skip": Ref("skip"),
                "counters": Ref("counters"),
                "schedule": Ref("schedule"),
                "decay": Ref("adam_decay"),
                "td": Ref("td"),
                "loss": Ref("loss"),
                "q_taken": Ref("q_taken"),
                **DRAWN_ROWS,
                **PRIORITY_ARGS,
                "seen": Ref("fused_diagnostics"),
                "record": Ref("record"),
                "history": Ref("history"),
                "n": shapes.batch,
                "inputs": net.inputs,
                "width0": net.width0,
                "width1": net.width1,
                "stride": net.stride,
                **self._tensors(),
                "blocks": apply_step.blocks_of(net.inputs, net.width0, net.width1, net.stride),
                "max_norm": learn.max_grad_norm,
                "beta1": learn.adam_beta1,
                "beta2": learn.adam_beta2,
                "eps": learn.adam_eps,
                "every": shapes.target_every,
                "ring": shapes.ring,
                "prioritise": int(self._prioritises),
                "leaf_count": shapes.capacity,
                "alpha": replay.alpha,
                "leaf_eps": replay.eps,
            },
        )


def obstacle(shapes: Shapes, device: Device) -> str:
    """Why the kernels here can't do this learning step on a device; empty if they can."""
    network, config = shapes.network, shapes.config
    parts = {
        "a head of quantiles": network.iqn,
        "a head of atoms": network.c51,
        "value networks": network.value_networks,
        "a denoising network": network.denoise,
        "noise on its weights": network.noisy,
        "a cap on its spectral norms": network.spectral,
        "a vaccine batch": config.learn.vaccine or None,
        "a gradient budget": config.learn.budget.on or None,
        "hindsight": config.hindsight.strategy != "none" or None,
    }
    if found := [name for name, part in parts.items() if part is not None]:
        return f"the fused kernels have no code for {found[0]}"
    trunk = network.trunk
    layers = [block for block in trunk if isinstance(block, HiddenLayers)]
    if len(trunk) != 1 or len(layers) != 1 or len(layers[0].widths) != 2:
        return (
            "the fused kernels are for two hidden layers and nothing else before the head, not for"
            f" {_trunk_words(network)}"
        )
    if device.largest_cluster < min(CLUSTERS):
        return (
            f"{device.name} forms no clusters of blocks, which the fused kernels need (compute"
            " capability 9.0 and up)"
        )
    net = _widths(network)
    if not td_pass.takes(net):
        return (
            f"the fused kernels need widths that are multiples of 4, not {net.inputs} inputs and"
            f" hidden layers of {net.width0} and {net.width1}"
        )
    if not any(_fitting(shapes, device)):
        least = min(td_pass.shared_bytes(net, rows, c) for rows in td_pass.ROWS for c in CLUSTERS)
        return (
            f"the matrices do not fit shared memory: a block of the fused kernels needs {least:,}"
            f" bytes at least, and has {device.largest_shared:,}"
        )
    return ""


def _widths(network: QNetwork) -> TwoLayers:
    width0, width1 = network.config.hidden
    return TwoLayers(network.inputs, width0, width1, network.stride)


def _trunk_words(network: QNetwork) -> str:
    config = network.config
    words = [f"{len(config.hidden)} hidden layer{'s' if len(config.hidden) > 1 else ''}"]
    words += ["a gate"] if config.gate else []
    words += ["attention"] if config.attention_groups else []
    words += [f"{config.residual_blocks} residual blocks"] if config.residual_blocks else []
    return " and ".join(words)


def _fitting(shapes: Shapes, device: Device) -> Iterator[FusedStep]:
    for cluster in CLUSTERS:
        for rows in td_pass.ROWS:
            step = FusedStep(shapes, rows, cluster)
            if cluster <= device.largest_cluster and step.fits(device.largest_shared):
                yield step


def fused_steps(shapes: Shapes, device: Device) -> tuple[FusedStep, ...]:
    """The ways in which the kernels here can do this learning step; none if they can't."""
    return () if obstacle(shapes, device) else tuple(_fitting(shapes, device))


def candidates(
    shapes: Shapes, device: Device, hindsight: Relabelling | None = None
) -> tuple[StepForm, ...]:
    """The ways in which stage 7 can do this learning step.

    There are those of the fused kernels, and what any step has (`regroupings`).
    """
    return (*fused_steps(shapes, device), *regroupings(shapes, device, hindsight))
