"""Two small value networks whose spread says how good a transition was: implicit Q-learning.

Kostrikov et al. 2022, "Offline reinforcement learning with implicit Q-learning". V_hi and V_lo are
regressed on the target network's Q(s, a) with a high and a low expectile. They have parameters,
and Adam groups, of their own, and no part in the Q network: nothing flows back into the states.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.stages.program import Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.layout import Group, TensorSpec

#: Names of the two networks' parameters and buffers, and the group of each.
NETWORKS = (("iql", Group.IQL), ("iql_low", Group.IQL_LOW))


@dataclass(frozen=True)
class Values:
    """State values [rows] of both networks."""

    hi: Ref
    lo: Ref


@dataclass(frozen=True)
class ValueLoss:
    """What the regression gives, each [rows]: Q(s, a), losses, the networks' output gradients."""

    q: Ref
    loss_hi: Ref
    loss_lo: Ref
    grad_hi: Ref
    grad_lo: Ref


@dataclass(frozen=True)
class ValueNetworks:
    """V_hi and V_lo: each Linear(width, hidden), ReLU, Linear(hidden, 1), on the raw states.

    Attributes:
        width: Sp, the states' padded width.
        hidden: width of the hidden layer of each.
        high, low: the expectiles of V_hi and V_lo, in (0, 1).
        real_width: S, the states' width without padding; 0: there is none.
    """

    width: int
    hidden: int
    high: float = 0.7
    low: float = 0.3
    real_width: int = 0

    def tensors(self) -> tuple[TensorSpec, ...]:
        """Weights and biases of both networks, each in its group."""
        return tuple(
            tensor
            for name, group in NETWORKS
            for tensor in (
                *linear_tensors(
                    f"{name}.hidden", self.width, self.hidden, group, real_in=self.real_width
                ),
                *linear_tensors(f"{name}.value", self.hidden, 1, group),
            )
        )

    # Layer by layer, both networks in turn: two matrix products that stand side by side have one
    # shape and do not depend on one another.

    def forward(self, emit: Emit, s: Ref) -> Values:
        """Emit the values of `s` [rows, Sp]."""
        for name, _ in NETWORKS:
            emit.linear(
                f"{name}.hidden", s, self.width, self.hidden, self._hidden(emit, name), relu=True
            )
        hi, lo = (
            emit.linear(
                f"{name}.value",
                self._hidden(emit, name),
                self.hidden,
                1,
                emit.buffer(f"{name}_value", (emit.rows,)),
            )
            for name, _ in NETWORKS
        )
        return Values(hi, lo)

    def loss(
        self, emit: Emit, head: Ref, action: Ref, weight: Ref, *, actions: int, dueling: bool
    ) -> ValueLoss:
        """Emit the expectile regression of the values that `forward` has emitted.

        Args:
            emit: the pass of that `forward`.
            head: [rows, A + d], the target network's on the same states.
            action: i32 [rows], the taken ones.
            weight: [rows], importance weights.
            actions: A.
            dueling: whether the head is.
        """
        rows = (emit.rows,)
        values = {name: emit.buffer(f"{name}_value", rows) for name, _ in NETWORKS}
        out = ValueLoss(
            q=emit.buffer("iql_q", rows),
            loss_hi=emit.buffer("iql_loss", rows),
            loss_lo=emit.buffer("iql_low_loss", rows),
            grad_hi=self._value_grad(emit, "iql"),
            grad_lo=self._value_grad(emit, "iql_low"),
        )
        emit.launch(
            "expectile_loss",
            head=head,
            action=action,
            weight=weight,
            v_hi=values["iql"],
            v_lo=values["iql_low"],
            q=out.q,
            loss_hi=out.loss_hi,
            loss_lo=out.loss_lo,
            grad_hi=out.grad_hi,
            grad_lo=out.grad_lo,
            rows=emit.rows,
            actions=actions,
            dueling=int(dueling),
            high=self.high,
            low=self.low,
        )
        return out

    def backward(self, emit: Emit, s: Ref) -> None:
        """Emit the gradients of both networks' parameters, after `loss`."""
        for name, _ in NETWORKS:
            emit.linear_grad(
                f"{name}.value",
                self._hidden(emit, name),
                self._value_grad(emit, name),
                self.hidden,
                1,
            )
        for name, _ in NETWORKS:
            emit.linear_grad_in(
                f"{name}.value",
                self._value_grad(emit, name),
                self.hidden,
                1,
                self._hidden_grad(emit, name),
                relu_of=self._hidden(emit, name),
            )
        for name, _ in NETWORKS:
            emit.linear_grad(
                f"{name}.hidden", s, self._hidden_grad(emit, name), self.width, self.hidden
            )

    def _hidden(self, emit: Emit, name: str) -> Ref:
        return emit.buffer(f"{name}_hidden", (emit.rows, self.hidden))

    def _hidden_grad(self, emit: Emit, name: str) -> Ref:
        return emit.buffer(f"{name}_hidden_grad", (emit.rows, self.hidden))

    @staticmethod
    def _value_grad(emit: Emit, name: str) -> Ref:
        return emit.buffer(f"{name}_value_grad", (emit.rows,))


@dataclass(frozen=True)
class Modulation:
    """How the advantage over the value networks scales TD errors before the priority update.

    Attributes:
        k: how steeply.
        eps: added to the spread of the values, positive.
        low, high: bounds of the factor, 0 <= low <= high.
    """

    k: float = 1.0
    eps: float = 1e-3
    low: float = 0.5
    high: float = 2.0

    def emit(self, emit: Emit, td: Ref, q: Ref, values: Values) -> None:
        """Emit the scaling of `td` [rows] in place; `q` [rows] is `ValueLoss.q`."""
        emit.launch(
            "iql_modulate",
            td=td,
            q=q,
            v_hi=values.hi,
            v_lo=values.lo,
            rows=emit.rows,
            k=self.k,
            eps=self.eps,
            low=self.low,
            high=self.high,
        )
