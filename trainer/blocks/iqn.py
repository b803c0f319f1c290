"""The implicit quantile head: a function of features and quantile levels (Dabney et al. 2018).

Letters: B rows of a pass, H features, Q levels a row, A actions, d = 1 when dueling. A pass draws
its levels, embeds their cosines to H, multiplies the embedding into the features, and maps the
product [B Q, H] linearly to [B Q, A + d]: 5 nodes. All parameters are of the Adam group IQN.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.kernels.learner.advance_counters import COLLECT, LEARN
from onegraph.kernels.learner.iqn_cosines import TauUse
from onegraph.kernels.learner.iqn_readiness import initial_readiness
from onegraph.stages.program import Buffer, Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.head_loss import HeadBatch, HeadLoss, LossBuffers
from onegraph.trainer.blocks.layout import Group, TensorSpec

#: The state of the readiness rule, shared by all passes.
READY = "iqn_ready"


@dataclass(frozen=True)
class Readiness:
    """When the quantile head decides (see `iqn_readiness`).

    Attributes:
        decay: of the average of the quantile loss, in [0, 1).
        low: average loss at and below which the quantile head decides alone.
        high: average loss at and above which the plain head does.
    """

    decay: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.decay < 1.0:
            raise ValueError(f"decay {self.decay} is not in [0, 1)")
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")


@dataclass(frozen=True)
class IqnHead:
    """The quantile head on features [B, H].

    Attributes:
        hidden: H.
        actions: A.
        dueling: whether the head has a state value beside the advantages.
        quantiles: Q, levels a row of every pass but the target's.
        target_quantiles: Q', levels a row of the target network's pass.
        cosines: width of the embedding's input.
        kappa: where the Huber loss turns linear.
        seed: key of the levels' draws.
        readiness: when the quantiles decide; without it they always do, and no plain head is
            needed.
    """

    hidden: int
    actions: int
    dueling: bool
    quantiles: int
    target_quantiles: int
    cosines: int = 64
    kappa: float = 1.0
    seed: int = 0
    readiness: Readiness | None = None

    def __post_init__(self) -> None:
        for name in ("hidden", "actions", "quantiles", "target_quantiles", "cosines"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.kappa > 0.0:
            raise ValueError(f"kappa {self.kappa} must be positive")

    @property
    def stride(self) -> int:
        """Columns of the head's matrix."""
        return self.actions + int(self.dueling)

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The embedding and the output layer."""
        return (
            *linear_tensors("iqn.embed", self.cosines, self.hidden, Group.IQN),
            *linear_tensors("iqn.head", self.hidden, self.stride, Group.IQN),
        )

    def state(self) -> tuple[Buffer, ...]:
        """``iqn_ready`` (float64 [2]): the average loss and the weight of the quantiles."""
        weight = 0.0 if self.readiness else 1.0
        return (
            Buffer(READY, (2,), "f64", initial=lambda: initial_readiness(weight), persistent=True),
        )

    def levels(self, use: TauUse) -> int:
        """Levels a row of a pass."""
        return self.target_quantiles if use == TauUse.TARGET else self.quantiles

    def forward(self, emit: Emit, features: Ref, use: TauUse) -> Ref:
        """Quantiles [B Q, A + d] of `features` [B, H], a row for each level.

        ACT and EVALUATE draw by the collecting step's number, the other passes by the learning
        step's; those stand in phases after `counters`.
        """
        levels = self.levels(use)
        n = emit.rows * levels
        tau = emit.buffer("iqn.tau", (n,))
        cosines = emit.buffer("iqn.cosines", (n, self.cosines))
        emit.launch(
            "iqn_cosines",
            tau=tau,
            cosines=cosines,
            counters="counters",
            n=n,
            frequencies=self.cosines,
            program=COLLECT if use in (TauUse.ACT, TauUse.EVALUATE) else LEARN,
            use=int(use),
            seed=self.seed,
        )
        phi = emit.buffer("iqn.phi", (n, self.hidden))
        # Its ReLU stands in the kernels that read it.
        emit.linear("iqn.embed", cosines, self.cosines, self.hidden, phi, rows=n)
        z = emit.buffer("iqn.z", (n, self.hidden))
        emit.launch(
            "iqn_mix",
            features=features,
            phi=phi,
            z=z,
            rows=emit.rows,
            quantiles=levels,
            hidden=self.hidden,
        )
        head = emit.buffer("iqn.head", (n, self.stride))
        return emit.linear("iqn.head", z, self.hidden, self.stride, head, rows=n)

    def values(self, emit: Emit, head: Ref, use: TauUse, plain: Ref | None = None) -> Ref:
        """Action values [B, A + d] in the plain head's form, from the pass' quantiles.

        Args:
            emit: the pass.
            head: what `forward` gave.
            use: what `forward` was given.
            plain: the plain head [B, A + d] of the same rows, which `readiness` blends in.

        Raises:
            ValueError: there is a readiness rule, and no plain head.
        """
        if self.readiness and plain is None:
            raise ValueError("a head with a readiness rule needs the plain head of the same rows")
        values = emit.buffer("iqn.values", (emit.rows, self.stride))
        emit.declare(*self.state())
        emit.launch(
            "iqn_values",
            head=head,
            head_plain=head if plain is None else plain,
            ready=READY,
            values=values,
            rows=emit.rows,
            quantiles=self.levels(use),
            stride=self.stride,
        )
        return values

    def loss(
        self,
        emit: Emit,
        head: Ref,
        head_target: Ref,
        head_select: Ref,
        batch: HeadBatch,
        out: LossBuffers | None = None,
    ) -> HeadLoss:
        """The quantile Huber loss of the online pass `emit` (see `iqn_loss`).

        Args:
            emit: the online pass on s_tm1.
            head: its quantiles [B Q, A + d].
            head_target: the target network's on s_t [B Q', A + d].
            head_select: whose greedy action bootstraps [B, A + d]: `values` of the online network
                on s_t (double), or of the target's.
            batch: the sampled transitions.
            out: where errors, losses and values go; None: buffers of the pass.
        """
        rows, n = emit.rows, emit.rows * self.quantiles
        out = out or LossBuffers(
            td=emit.buffer("iqn.td", (rows,)),
            loss=emit.buffer("iqn.loss", (rows,)),
            q_taken=emit.buffer("iqn.q_taken", (rows,)),
        )
        loss = HeadLoss(
            td=out.td,
            loss=out.loss,
            q_taken=out.q_taken,
            grad_head=emit.buffer("iqn.grad_head", (n, self.stride)),
        )
        emit.launch(
            "iqn_loss",
            head_tm1=head,
            tau=emit.buffer("iqn.tau", (n,)),
            head_target=head_target,
            head_select=head_select,
            action=batch.action,
            reward=batch.reward,
            discount=batch.discount,
            weight=batch.weight,
            td=loss.td,
            loss=loss.loss,
            q_taken=loss.q_taken,
            grad_head=loss.grad_head,
            n=rows,
            quantiles=self.quantiles,
            target_quantiles=self.target_quantiles,
            actions=self.actions,
            dueling=int(self.dueling),
            kappa=self.kappa,
        )
        return loss

    def backward(
        self, emit: Emit, features: Ref, grad_head: Ref, *, add_to: Ref | None = None
    ) -> Ref:
        """Gradients of the parameters and of the features, for the online pass `emit`.

        Args:
            emit: the online pass.
            features: what `forward` was given.
            grad_head: [B Q, A + d].
            add_to: another gradient in the features [B, H], to which this one is added in place.

        Returns:
            The gradient in the features [B, H]: `add_to`, or a buffer of its own.
        """
        n = emit.rows * self.quantiles
        matrix = (n, self.hidden)
        z, phi = emit.buffer("iqn.z", matrix), emit.buffer("iqn.phi", matrix)
        emit.linear_grad("iqn.head", z, grad_head, self.hidden, self.stride, rows=n)
        grad_z = emit.buffer("iqn.grad_z", matrix)
        emit.linear_grad_in("iqn.head", grad_head, self.hidden, self.stride, grad_z, rows=n)
        grad_phi = emit.buffer("iqn.grad_phi", matrix)
        grad_features = add_to or emit.buffer("iqn.grad_features", (emit.rows, self.hidden))
        emit.launch(
            "iqn_mix_grad",
            features=features,
            phi=phi,
            grad_z=grad_z,
            grad_phi=grad_phi,
            grad_features=grad_features,
            rows=emit.rows,
            quantiles=self.quantiles,
            hidden=self.hidden,
            add=int(add_to is not None),
            depth=features,  # neither is touched without `with_branch`
            grad_branch=emit.buffer("iqn.no_branch", (emit.rows,)),
            with_branch=0,
        )
        cosines = emit.buffer("iqn.cosines", (n, self.cosines))
        emit.linear_grad("iqn.embed", cosines, grad_phi, self.cosines, self.hidden, rows=n)
        return grad_features

    def update_readiness(self, emit: Emit, loss: Ref, skip: str = "skip") -> None:
        """Take the step's loss [B] into the average, once the skip flag is known.

        Without a readiness rule it emits nothing.
        """
        if self.readiness is None:
            return
        emit.declare(*self.state())
        emit.launch(
            "iqn_readiness",
            loss=loss,
            skip=skip,
            ready=READY,
            n=emit.rows,
            decay=self.readiness.decay,
            low=self.readiness.low,
            high=self.readiness.high,
        )
