"""The categorical head: a distribution over fixed atoms for each action (Bellemare et al. 2017).

Letters: B rows, H features, A actions, d = 1 when dueling, K atoms. The head is one linear layer
from features [B, H] to logits [B, (A + d) K] (see `kernels.learner.categorical`). It stands in the
plain head's place, and is of its Adam group.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.kernels.learner.categorical import MAX_ATOMS
from onegraph.stages.program import Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.head_loss import HeadBatch, HeadLoss, LossBuffers
from onegraph.trainer.blocks.layout import Group, TensorSpec


@dataclass(frozen=True)
class C51Head:
    """The categorical head on features [B, H].

    Attributes:
        hidden: H.
        actions: A.
        dueling: whether the head has a state value beside the advantages, atom by atom.
        atoms: K.
        v_min: return at which the first atom stands.
        v_max: return at which the last one does.
    """

    hidden: int
    actions: int
    dueling: bool
    atoms: int
    v_min: float
    v_max: float

    def __post_init__(self) -> None:
        for name in ("hidden", "actions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 2 <= self.atoms <= MAX_ATOMS:
            raise ValueError(f"atoms is {self.atoms}; a head has 2 to {MAX_ATOMS}")
        if not self.v_min < self.v_max:
            raise ValueError(f"v_min {self.v_min} is not below v_max {self.v_max}")

    @property
    def width(self) -> int:
        """Columns of the head's matrix, (A + d) K."""
        return (self.actions + int(self.dueling)) * self.atoms

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The output layer."""
        return linear_tensors("c51.head", self.hidden, self.width, Group.TRUNK)

    def forward(self, emit: Emit, features: Ref) -> Ref:
        """Logits [B, (A + d) K] of `features` [B, H]."""
        head = emit.buffer("c51.head", (emit.rows, self.width))
        return emit.linear("c51.head", features, self.hidden, self.width, head)

    def values(self, emit: Emit, head: Ref) -> Ref:
        """Expected values [B, A] of the logits; `act` reads them with a stride of A."""
        values = emit.buffer("c51.values", (emit.rows, self.actions))
        emit.launch(
            "c51_values",
            head=head,
            values=values,
            rows=emit.rows,
            actions=self.actions,
            dueling=int(self.dueling),
            atoms=self.atoms,
            v_min=self.v_min,
            v_max=self.v_max,
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
        """The cross entropy of the online pass `emit` (see `c51_loss`).

        Args:
            emit: the online pass on s_tm1.
            head: its logits [B, (A + d) K].
            head_target: the target network's on s_t.
            head_select: whose greedy action bootstraps [B, A]: `values` of the online network on
                s_t (double), or of the target's.
            batch: the sampled transitions.
            out: where errors, losses and values go; None: buffers of the pass.
        """
        rows = emit.rows
        out = out or LossBuffers(
            td=emit.buffer("c51.td", (rows,)),
            loss=emit.buffer("c51.loss", (rows,)),
            q_taken=emit.buffer("c51.q_taken", (rows,)),
        )
        loss = HeadLoss(
            td=out.td,
            loss=out.loss,
            q_taken=out.q_taken,
            grad_head=emit.buffer("c51.grad_head", (rows, self.width)),
        )
        emit.launch(
            "c51_loss",
            head_tm1=head,
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
            actions=self.actions,
            dueling=int(self.dueling),
            atoms=self.atoms,
            v_min=self.v_min,
            v_max=self.v_max,
        )
        return loss

    def backward(
        self, emit: Emit, features: Ref, grad_head: Ref, *, relu_of: Ref | None = None
    ) -> Ref:
        """Gradients of the parameters, and of the features [B, H], for the online pass `emit`.

        `relu_of` is the activation whose ReLU the gradient goes through too, if any.
        """
        emit.linear_grad("c51.head", features, grad_head, self.hidden, self.width)
        out = emit.buffer("c51.grad_features", (emit.rows, self.hidden))
        return emit.linear_grad_in(
            "c51.head", grad_head, self.hidden, self.width, out, relu_of=relu_of
        )
