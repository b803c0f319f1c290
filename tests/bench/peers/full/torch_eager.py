"""The full step in PyTorch, eager: every op launched by Python."""

from __future__ import annotations

import torch
from torch import Tensor

from ..torch_learner import matmul_precision
from .learner import Copies, Found, FullLearner, Objective
from .problem import Draws, FullSpec, FullState


class FullEager(FullLearner):
    """The step as it is, with autograd and the fused AdamW."""

    quantum = 1

    def __init__(self, spec: FullSpec, initial: FullState) -> None:
        super().__init__(spec, initial)
        self.optimiser = torch.optim.AdamW(
            [self.theta],
            lr=spec.lr,
            betas=(spec.adam_beta1, spec.adam_beta2),
            eps=spec.adam_eps,
            weight_decay=spec.weight_decay,
            fused=True,
            capturable=spec.device == "cuda",
        )

    def differentiate(self, objective: Objective, at: Copies) -> tuple[Copies, Found]:
        with torch.enable_grad():
            leaves = Copies(*(t.detach().requires_grad_() for t in at))
            total, found = objective(leaves)
            return Copies(*torch.autograd.grad(total, leaves)), found

    def adam(self, grad: Tensor) -> None:
        self.theta.grad = grad
        self.optimiser.step()

    def step(self, given: Draws | None = None) -> None:
        with torch.no_grad(), matmul_precision(self.spec):
            self.learn(self.draw() if given is None else self.upload(given))

    def run(self, steps: int) -> None:
        with torch.no_grad(), matmul_precision(self.spec):
            for _ in range(steps):
                self.learn(self.draw())

    def close(self) -> None:
        self.__dict__.clear()


def make(spec: FullSpec, initial: FullState) -> FullEager:
    """The peer at its start."""
    return FullEager(spec, initial)
