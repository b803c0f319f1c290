"""PyTorch, eager: every op launched by Python."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .problem import InitialState, PeerSpec
from .torch_learner import Learner, matmul_precision


class TorchEager(Learner):
    """The step as it is."""

    quantum = 1

    def step(self, indices: NDArray[Any] | None = None) -> None:
        with matmul_precision(self.spec):
            self.learn(self.replay.draw() if indices is None else self.upload(indices))

    def run(self, steps: int) -> None:
        with matmul_precision(self.spec):
            for _ in range(steps):
                self.learn(self.replay.draw())

    def close(self) -> None:
        self.__dict__.clear()


def make(spec: PeerSpec, initial: InitialState) -> TorchEager:
    """The peer at its start."""
    return TorchEager(spec, initial)
