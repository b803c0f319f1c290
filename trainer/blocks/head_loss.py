"""What a head's loss reads of the batch, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.stages.program import Ref


@dataclass(frozen=True)
class HeadBatch:
    """The sampled transitions, each [B]: action i32, the others float32."""

    action: Ref
    reward: Ref
    discount: Ref
    weight: Ref


@dataclass(frozen=True)
class HeadLoss:
    """A loss' outputs, float32.

    Attributes:
        td: what the priorities are made of [B].
        loss: of each row, weighted [B].
        q_taken: value of the action taken [B].
        grad_head: gradient of the mean loss in the head's matrix, written whole.
    """

    td: Ref
    loss: Ref
    q_taken: Ref
    grad_head: Ref
