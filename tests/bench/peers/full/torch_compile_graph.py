"""The full step in PyTorch, compiled whole by torch.compile, in one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..torch_compile_graph import INDUCTOR
from ..torch_graph import capture
from ..torch_learner import matmul_precision, require_cuda
from .learner import Copies, Found, FullLearner, Given, Objective
from .problem import Draws, FullSpec, FullState

#: Inductor's options, best first: its defaults, and those under which it compiles what its defaults
#: can fail on.
OPTIONS: tuple[dict[str, Any], ...] = ({}, INDUCTOR)


class FullCompiled(FullLearner):
    """The step as functions over its state, for torch.compile: Inductor sees all of it at once."""

    def __init__(self, spec: FullSpec, initial: FullState) -> None:
        super().__init__(spec, initial)
        self.mean, self.square = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.count = torch.zeros((), device=self.device)

    def differentiate(self, objective: Objective, at: Copies) -> tuple[Copies, Found]:
        def of_sections(*sections: Tensor) -> tuple[Tensor, Found]:
            return objective(Copies(*sections))

        grad = torch.func.grad(of_sections, argnums=tuple(range(len(at))), has_aux=True)
        grads, found = grad(*at)
        return Copies(*grads), Found(*found)

    def adam(self, grad: Tensor) -> None:
        spec = self.spec
        self.count.add_(1.0)
        correction1 = 1.0 - torch.pow(spec.adam_beta1, self.count)
        correction2 = 1.0 - torch.pow(spec.adam_beta2, self.count)
        self.mean.lerp_(grad, 1.0 - spec.adam_beta1)
        self.square.mul_(spec.adam_beta2).addcmul_(grad, grad, value=1.0 - spec.adam_beta2)
        root = (self.square / correction2).sqrt() + spec.adam_eps
        update = self.mean / correction1 / root + spec.weight_decay * self.theta
        self.theta.add_(update, alpha=-spec.lr)

    def state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        replay = self.replay
        vectors = [t for pair in self.vectors.values() for t in pair]
        own = [self.theta, self.target, self.mean, self.square, self.count, *vectors]
        read = [replay.leaves, replay.sums, replay.largest, self.last_loss]
        return [*own, self.ready_loss, self.ready, *read]

    def on_drawn(self) -> None:
        """One step on what it draws."""
        self.learn(self.draw())


class FullCompileGraph(FullCompiled):
    """Two graphs of the compiled step, made when first asked for: on drawn and on given numbers."""

    quantum = 1

    def __init__(self, spec: FullSpec, initial: FullState) -> None:
        require_cuda(spec)
        super().__init__(spec, initial)
        #: The graph on given numbers, and where it reads them.
        self._injected: tuple[torch.cuda.CUDAGraph, Given] | None = None

    def _captured(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The graph of `step`, compiled with the first options that Inductor manages."""
        *others, last = OPTIONS
        with torch.no_grad(), matmul_precision(self.spec):
            for options in others:
                try:
                    return self._capture(step, options)
                except Exception:  # noqa: BLE001  whatever Inductor raises
                    torch.compiler.reset()
            return self._capture(step, last)

    def _capture(self, step: Callable[[], None], options: dict[str, Any]) -> torch.cuda.CUDAGraph:
        compiled = torch.compile(step, fullgraph=True, dynamic=False, options=options)
        return capture(compiled, self.state())

    @cached_property
    def _drawn(self) -> torch.cuda.CUDAGraph:
        return self._captured(self.on_drawn)

    def step(self, given: Draws | None = None) -> None:
        if given is None:
            self._drawn.replay()
            return
        values = self.upload(given)
        if self._injected is None:
            placed = Given(*(tensor.clone() for tensor in values))
            self._injected = self._captured(lambda: self.learn(placed)), placed
        graph, placed = self._injected
        for tensor, value in zip(placed, values, strict=True):
            tensor.copy_(value)
        graph.replay()

    def run(self, steps: int) -> None:
        replay = self._drawn.replay
        for _ in range(steps):
            replay()

    def close(self) -> None:
        self.__dict__.clear()
        torch.compiler.reset()
        torch.cuda.empty_cache()


def make(spec: FullSpec, initial: FullState) -> FullCompileGraph:
    """The peer at its start; it compiles when first run."""
    return FullCompileGraph(spec, initial)
