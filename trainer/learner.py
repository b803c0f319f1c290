"""What a learning step computes between the draw and the priorities: its twelve phases' own ops.

Each part of the learner is one that the config can leave out; what is off leaves no op, no buffer
and no phase behind. With a vaccine batch the draw holds 2 B rows, the second half of which is that
batch: one forward pass serves both, and each has a backward pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import ADAM_GROUPS, Counter
from onegraph.kernels.learner.budget import COMPONENT_OF, Component
from onegraph.kernels.learner.noisy import NoisyPass
from onegraph.stages.program import Buffer, Launch, Memset, Op, Ref, merge_buffers
from onegraph.trainer.blocks.budget import GradientBudget
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.blocks.grouping import branched, side_by_side
from onegraph.trainer.blocks.head_loss import HeadBatch, LossBuffers
from onegraph.trainer.blocks.iql import Modulation, ValueLoss, Values
from onegraph.trainer.blocks.layout import Group
from onegraph.trainer.blocks.residual import draw_depth
from onegraph.trainer.blocks.vaccine import VaccineProjection
from onegraph.trainer.network import Outputs, Pass
from onegraph.trainer.replay import BATCH, ticket
from onegraph.trainer.shapes import Shapes

#: Chunks that the gradient's norm is summed in: one block each.
NORM_PARTS = 64

#: Gradients of the whole, of the denoising loss, and of the vaccine batch: laid out alike.
GRADIENTS = GRAD, GRAD_AUX, GRAD_VACCINE = "grad", "grad_aux", "grad_vaccine"


@dataclass(frozen=True)
class _Gradients:
    """Gradients in the heads' matrices of one batch."""

    plain: Ref | None
    distribution: Ref | None


class Learner:
    """Emits the ops of one learning step, phase by phase, in the order of the phases."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes, self.network, self.config = shapes, shapes.network, shapes.config
        network, rows = self.network, shapes.draws
        self._online = network.emit("online", rows, Pass.ONLINE)
        self._select = network.emit("select", rows, Pass.SELECT)
        self._target = network.emit("target", rows, Pass.TARGET)
        self._aux = network.emit("aux", shapes.batch, Pass.TARGET)
        self._value = network.emit("value", shapes.batch, Pass.ONLINE)
        self._noised = network.emit("noised", shapes.batch, Pass.ONLINE)
        self._noised.grads = GRAD_AUX
        self._noised.penalties = False  # `grad` has them, and the two are added up
        self._values: tuple[Values, ValueLoss] | None = None
        self._gradients: dict[str, _Gradients] = {}
        self._extra: list[Buffer] = []
        #: Where the auxiliary losses [B] of a step stand, by what they train.
        self.aux_losses: dict[str, Ref] = {}
        self.work: dict[str, tuple[Op, ...]] = {
            "counters": self._draws(),
            "spectral": network.spectral.learn_ops() if network.spectral else (),
            "forward": self._forward(),
            "ddqn": self._targets_and_losses(),
            "aux": self._auxiliaries(),
            "post_aux": self._backward(),
            "adam_grad": self._clip(),
            "adam": (self._adam(),),
            "maintenance": self._maintenance(),
            "iql_modulate": self._modulate(),
        }

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What the ops need beside the run's state and the batch."""
        network, b = self.network, self.shapes.batch
        passes = (
            self._online,
            self._select,
            self._target,
            self._aux,
            self._value,
            self._noised,
        )
        return merge_buffers(
            *(emit.buffers for emit in passes),
            self._extra,
            network.spectral.buffers(GRADIENTS) if network.spectral else (),
            self._budget.buffers() if self._budget else (),
            self._vaccine.buffers() if self._vaccine else (),
            network.state(),
            (
                *(Buffer(name, (network.size,), "f32") for name in (GRAD_AUX, GRAD_VACCINE)),
                *(Buffer(name, (b,), "f32") for name in ("td", "loss", "q_taken")),
                Buffer("norm_partial", (NORM_PARTS,), "f64"),
                ticket("norm_ticket"),
            ),
        )

    # ---------------------------------------------------------------- parts

    @cached_property
    def _vaccine(self) -> VaccineProjection | None:
        if not self.config.learn.vaccine:
            return None
        return VaccineProjection(self.network.layout, parts=NORM_PARTS)

    @cached_property
    def _budget(self) -> GradientBudget | None:
        """The budget; one without a limit where it only has to add the denoising gradient."""
        learn, budget = self.config.learn, self.config.learn.budget
        aux = GRAD_AUX if self.network.denoise else None
        if budget.on:
            shares = {
                Component.Q: budget.q,
                Component.IQL_HIGH: budget.iql_high,
                Component.IQL_LOW: budget.iql_low,
                Component.DENOISE: budget.denoise,
                Component.ATTENTION: budget.attention,
                Component.SELECTIVITY: budget.selectivity,
            }
            limit = learn.max_grad_norm
        elif aux:
            shares = dict.fromkeys(Component, 1.0 / len(Component))
            limit = 0.0
        else:
            return None
        return GradientBudget(self.network.layout, shares, limit, parts=NORM_PARTS, aux=aux)

    # ---------------------------------------------------------------- before the passes

    def _draws(self) -> tuple[Op, ...]:
        """What is drawn once a step, after the counters have advanced."""
        network, config = self.network, self.config.network
        emit = Emit(network.layout, "", self.shapes.batch)
        if config.residual_blocks and config.drop_path:
            draw_depth(emit, config.residual_blocks, config.drop_path, self.config.seed)
        if network.noisy:
            passes = [NoisyPass.ONLINE, NoisyPass.TARGET]
            passes += [NoisyPass.SELECT] if config.double else []
            emit.ops += network.noisy.learn_ops(network.layout, select=config.double)
            emit.declare(*network.noisy.buffers(network.layout, passes))
        self._extra += emit.buffers
        return emit.take()

    # ---------------------------------------------------------------- passes and losses

    def _forward(self) -> tuple[Op, ...]:
        self.network.forward(self._online, Ref(BATCH.states), Pass.ONLINE)
        return side_by_side([self._online.take()])

    def _targets_and_losses(self) -> tuple[Op, ...]:
        network, x = self.network, Ref(BATCH.next_states)
        selecting, use = self._target, Pass.TARGET
        if self.config.network.double:
            selecting, use = self._select, Pass.SELECT
            network.forward(self._select, x, use)
        network.forward(self._target, x, Pass.TARGET)
        network.values(selecting, network.found(selecting, x, use), use)
        passes = side_by_side([self._select.take(), self._target.take()])
        zeroed: list[Op] = []  # by calls that are waited for, at first: no branch takes those
        losses: list[list[Op]] = []
        for emit, prefix in self._batches():
            self._gradients[prefix] = self._loss(emit, prefix, selecting, use)
            ops = emit.take()
            zeroed += [op for op in ops if isinstance(op, Memset)]
            losses.append([op for op in ops if not isinstance(op, Memset)])
        return (*passes, *zeroed, *branched(losses))

    def _batches(self) -> tuple[tuple[Emit, str], ...]:
        """The online pass of the batch, and of the vaccine batch if there is one."""
        if not self._vaccine:
            return ((self._online, ""),)
        b = self.shapes.batch
        return (
            (self._online.part(0, b), ""),
            (self._online.part(b, b, GRAD_VACCINE), "vaccine_"),
        )

    def _of_batch(self, name: str, width: int = 1) -> Ref:
        """The batch's rows of a drawn buffer [draws, width], without the vaccine batch's."""
        return Ref(name, 0, self.shapes.batch * width) if self._vaccine else Ref(name)

    def _of(self, emit: Emit, whole: Emit) -> Emit:
        """The rows of another pass that stand beside those of `emit`."""
        return whole.part(emit.first, emit.rows) if emit.total else whole

    def _outputs(self, emit: Emit, inputs: str, use: Pass) -> Outputs:
        x = emit.rows_of(Ref(inputs), self.shapes.padded)
        return self.network.found(emit, x, use)

    def _loss(self, emit: Emit, prefix: str, selecting: Emit, use: Pass) -> _Gradients:
        """The losses of a batch; returns where their gradients stand."""
        network = self.network
        online = self._outputs(emit, BATCH.states, Pass.ONLINE)
        next_inputs = BATCH.next_states
        target = self._outputs(self._of(emit, self._target), next_inputs, Pass.TARGET)
        chosen = self._of(emit, selecting)
        best = network.values(chosen.silent(), self._outputs(chosen, next_inputs, use), use)
        batch = HeadBatch(
            *(
                emit.rows_of(Ref(name), 1)
                for name in (BATCH.actions, BATCH.rewards, BATCH.discounts, BATCH.weights)
            )
        )
        plain = distribution = None
        if network.plain:
            assert online.plain is not None
            assert target.plain is not None
            # Beside a distribution the plain head is a second opinion: its errors are its own.
            alone = network.iqn is None
            out = self._loss_buffers(prefix if alone else f"{prefix}plain_")
            plain = self._dqn_loss(emit, online.plain, target.plain, best, batch, out)
        if head := network.iqn or network.c51:
            assert online.distribution is not None
            assert target.distribution is not None
            distribution = head.loss(
                emit,
                online.distribution,
                target.distribution,
                best,
                batch,
                self._loss_buffers(prefix),
            ).grad_head
        return _Gradients(plain, distribution)

    def _loss_buffers(self, prefix: str) -> LossBuffers:
        names = [prefix + name for name in ("td", "loss", "q_taken")]
        self._extra += [Buffer(name, (self.shapes.batch,), "f32") for name in names]
        return LossBuffers(*map(Ref, names))

    def _dqn_loss(
        self,
        emit: Emit,
        head: Ref,
        target: Ref,
        select: Ref,
        batch: HeadBatch,
        out: LossBuffers,
    ) -> Ref:
        network, learn = self.network, self.config.learn
        grad_head = emit.buffer("grad_head", (emit.rows, network.stride))
        if not network.dueling:
            # Only the taken action has a gradient, and the kernel writes no more. With a dueling
            # head it writes whole rows, and zeroing them first would be a node for nothing.
            emit.ops.append(Memset(grad_head, blocking=True))
        emit.launch(
            "dqn_loss",
            head_tm1=head,
            head_select=select,
            head_target=target,
            action=batch.action,
            reward=batch.reward,
            discount=batch.discount,
            weight=batch.weight,
            td=out.td,
            loss=out.loss,
            q_taken=out.q_taken,
            grad_head=grad_head,
            n=emit.rows,
            actions=network.actions,
            dueling=int(network.dueling),
            double_q=1,
            mse=int(learn.loss == "mse"),
            delta=learn.huber_delta,
        )
        return grad_head

    # ---------------------------------------------------------------- auxiliaries

    def _auxiliaries(self) -> tuple[Op, ...]:
        network, states = self.network, self._of_batch(BATCH.states, self.shapes.padded)
        passes: list[tuple[Op, ...]] = []
        if network.value_networks:
            aux, own, nets = self._aux, self._value, network.value_networks
            q = network.values(aux, network.forward(aux, states, Pass.TARGET), Pass.TARGET)
            values = nets.forward(own, states)  # by what Adam changes; they have no target
            passes += [aux.take(), own.take()]
            action, weight = map(self._of_batch, (BATCH.actions, BATCH.weights))
            loss = nets.loss(
                own, q, action, weight, actions=network.actions, dueling=network.dueling
            )
            self._values = values, loss
            self.aux_losses |= {"iql_high": loss.loss_hi, "iql_low": loss.loss_lo}
        if network.denoise:
            noised, decoder = self._noised, network.denoise
            x = decoder.noised(noised, states, self.config.seed)
            decoder.forward(noised, network.features(noised, x))
            self.aux_losses["denoise"] = decoder.loss(noised, states)
            passes.append(noised.take())
        return (*side_by_side(passes), *self._value.take())

    # ---------------------------------------------------------------- gradients

    def _backward(self) -> tuple[Op, ...]:
        network, b = self.network, self.shapes.batch
        passes: list[tuple[Op, ...]] = []
        for emit, prefix in self._batches():
            grads = self._gradients[prefix]
            x = emit.rows_of(Ref(BATCH.states), self.shapes.padded)
            outputs = network.found(emit, x, Pass.ONLINE)
            network.backward(emit, x, outputs, grads.plain, grads.distribution)
            passes.append(emit.take())
        if network.value_networks:
            states = self._of_batch(BATCH.states, self.shapes.padded)
            network.value_networks.backward(self._value, states)
            passes.append(self._value.take())
        if network.denoise:
            noised = self._noised
            x = noised.buffer("denoise_noised", (b, self.shapes.padded))
            features = network.features(noised.silent(), x)
            grad = network.denoise.backward(noised, features)
            network.trunk_backward(noised, x, features, grad)
            passes.append(noised.take())
        return (*side_by_side(passes), *self._combined())

    def _combined(self) -> tuple[Op, ...]:
        """From the gradients of what the passes read to one gradient of the parameters."""
        network = self.network
        corrections: list[tuple[Op, ...]] = []
        for grads in (GRAD, GRAD_VACCINE) if self._vaccine else (GRAD,):
            normal = network.spectral.grad_ops(grads=grads) if network.spectral else ()
            noisy = network.noisy.grad_ops(network.layout, grads=grads) if network.noisy else ()
            corrections.append((*normal, *noisy))
        if network.denoise and network.spectral:
            corrections.append(network.spectral.grad_ops(grads=GRAD_AUX))
        ops = [*branched(corrections)]
        if self._budget:
            ops += self._budget.ops()
        if self._vaccine:
            ops += [*self._without_share(), *self._vaccine.ops()]
        return tuple(ops)

    def _without_share(self) -> Iterator[Op]:
        """What has no share of the gradient is given none by the projection either."""
        if not self._budget:
            return
        for group in (Group.SELECTIVITY, Group.ATTENTION, Group.TRUNK, Group.IQN):
            start, end = self.network.layout.range_of(group)
            if start < end and not self._budget.shares[COMPONENT_OF[Counter(group)]]:
                yield Memset(Ref(GRAD_VACCINE, start, end - start), blocking=True)

    def _clip(self) -> tuple[Op, ...]:
        """The finite check and the clip factor, from the norm."""
        args: dict[str, Ref | int | float] = {
            "partial": Ref("norm_partial"),
            "clip": Ref("clip"),
            "skip": Ref("skip"),
            "parts": NORM_PARTS,
            "max_norm": self.config.learn.max_grad_norm,
        }
        if self._budget or self._vaccine:  # both leave the partial sums behind
            return (Launch("clip_factor", args),)
        args |= {"grad": Ref(GRAD), "ticket": Ref("norm_ticket"), "n": self.network.size}
        return (Launch("grad_norm", args),)

    def _adam(self) -> Op:
        learn = self.config.learn
        return Launch(
            "adam_step",
            {
                "param": Ref("theta"),
                "m": Ref("adam_m"),
                "v": Ref("adam_v"),
                "grad": Ref(GRAD),
                "clip": Ref("clip"),
                "schedule": Ref("schedule"),
                "skip": Ref("skip"),
                "ends": Ref("adam_ends"),
                "decay": Ref("adam_decay"),
                "n": self.network.size,
                "beta1": learn.adam_beta1,
                "beta2": learn.adam_beta2,
                "eps": learn.adam_eps,
            },
        )

    # ---------------------------------------------------------------- after the step

    def _maintenance(self) -> tuple[Op, ...]:
        """What follows an update and no stage replaces: the readiness of the quantile head."""
        emit = Emit(self.network.layout, "", self.shapes.batch)
        if self.network.iqn:
            self.network.iqn.update_readiness(emit, Ref("loss"))
        return emit.take()

    def follow_up(self) -> tuple[Op, ...]:
        """Target update and batch statistics, as the stages before `gpu-counters` have them."""
        emit = Emit(self.network.layout, "", self.shapes.batch)
        emit.launch(
            "target_update",
            target="theta_target",
            param="theta",
            schedule="schedule",
            counters="counters",
            skip="skip",
            n=self.network.size,
            every=self.shapes.target_every,
        )
        emit.launch(
            "batch_stats",
            loss="loss",
            td="td",
            q_taken="q_taken",
            stats="stats",
            n=self.shapes.batch,
        )
        return emit.take()

    def _modulate(self) -> tuple[Op, ...]:
        aux = self.config.aux
        if not aux.modulate or self._values is None:
            return ()
        values, loss = self._values
        rule = Modulation(aux.modulate_k, aux.modulate_eps, aux.modulate_low, aux.modulate_high)
        rule.emit(self._value, Ref("td"), loss.q, values)
        return self._value.take()


def adam_groups(shapes: Shapes) -> tuple[Buffer, ...]:
    """Where each Adam group ends, and how its parameters decay."""
    ends, decay = shapes.network.layout.ends, shapes.config.learn.weight_decay

    def end_offsets() -> NDArray[np.int64]:
        return np.array(ends, np.int64)

    return (
        Buffer("adam_ends", (ADAM_GROUPS,), "i64", initial=end_offsets),
        Buffer(
            "adam_decay",
            (ADAM_GROUPS,),
            "f32",
            initial=lambda: np.full(ADAM_GROUPS, decay, np.float32),
        ),
    )
