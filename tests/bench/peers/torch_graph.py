"""PyTorch with the whole step in one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from .problem import InitialState, PeerSpec
from .torch_learner import Learner, matmul_precision, require_cuda

#: Steps before the capture, on the side stream, as PyTorch's notes on CUDA graphs have it.
WARM_UP = 3


@contextmanager
def undone(state: list[Tensor]) -> Iterator[None]:
    """`state` is afterwards what it was before."""
    saved = [t.detach().clone() for t in state]
    yield
    with torch.no_grad():
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)


def capture(step: Callable[[], None], state: list[Tensor]) -> torch.cuda.CUDAGraph:
    """`step` as one graph; its warm-up leaves no trace in `state`."""
    graph = torch.cuda.CUDAGraph()
    with undone(state):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    torch.cuda.synchronize()
    return graph


class TorchGraph(Learner):
    """Two graphs of the step, each captured when first asked for: on drawn and on given rows."""

    quantum = 1

    def __init__(self, spec: PeerSpec, initial: InitialState) -> None:
        require_cuda(spec)
        super().__init__(spec, initial)
        self.injected = torch.zeros(spec.batch, dtype=torch.int64, device=self.device)
        self._create_moments()

    def _create_moments(self) -> None:
        """Adam makes its moments in its first step: take one with a gradient of zero, undo it."""
        saved = [p.detach().clone() for p in self.params]
        for p in self.params:
            p.grad = torch.zeros_like(p)
        self.adam.step()
        with torch.no_grad():
            for p, before in zip(self.params, saved, strict=True):
                p.copy_(before)
            for moments in self.adam.state.values():
                for tensor in moments.values():
                    tensor.zero_()

    def _state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        moments = [t for m in self.adam.state.values() for t in m.values()]
        replay = self.replay
        changed = [replay.leaves, replay.sums, replay.largest, self.last_loss]
        return [*self.params, *self.target_params, *moments, *changed]

    @cached_property
    def _drawn(self) -> torch.cuda.CUDAGraph:
        with matmul_precision(self.spec):
            return capture(lambda: self.learn(self.replay.draw()), self._state())

    @cached_property
    def _given(self) -> torch.cuda.CUDAGraph:
        with matmul_precision(self.spec):
            return capture(lambda: self.learn(self.injected), self._state())

    def step(self, indices: NDArray[Any] | None = None) -> None:
        if indices is None:
            self._drawn.replay()
            return
        graph = self._given
        self.injected.copy_(self.upload(indices))
        graph.replay()

    def run(self, steps: int) -> None:
        replay = self._drawn.replay
        for _ in range(steps):
            replay()

    def close(self) -> None:
        self.__dict__.clear()
        torch.cuda.empty_cache()


def make(spec: PeerSpec, initial: InitialState) -> TorchGraph:
    """The peer at its start."""
    return TorchGraph(spec, initial)
