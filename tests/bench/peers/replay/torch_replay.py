"""Plain PyTorch: a step in one CUDA graph, op by op or compiled whole by torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..full.torch_compile_graph import OPTIONS
from ..torch_graph import capture
from ..torch_learner import require_cuda, require_device
from .problem import Batch, ReplaySpec, ReplayState
from .torch_memory import Memory, PrefixSums, TwoLevelTree


class ReplayStep:
    """A memory, and a step of it on the given TD errors."""

    def __init__(self, kind: type[Memory], spec: ReplaySpec, initial: ReplayState) -> None:
        self.spec, self.device = spec, require_device(spec)
        torch.manual_seed(spec.seed)
        self.memory = kind(spec, initial, self.device)
        self.errors = torch.from_numpy(initial.errors).to(self.device)

    def step(self) -> Batch:
        """Draw a batch and write back to it."""
        batch = self.memory.drawn()
        self.memory.write_back(batch.index, self.errors)
        return batch

    def draw(self) -> Batch:
        return Batch(*(values.cpu().numpy() for values in self.memory.drawn()))

    def write_back(self, index: NDArray[Any], errors: NDArray[np.float32]) -> None:
        rows = torch.from_numpy(np.asarray(index, np.int64)).to(self.device)
        self.memory.write_back(rows, torch.from_numpy(errors).to(self.device))

    def priorities(self) -> NDArray[np.float32]:
        return self.memory.leaves.view(-1)[: self.spec.capacity].cpu().numpy().copy()


class ReplayGraph(ReplayStep):
    """The step in one graph; the batch lies where the graph puts it."""

    quantum = 1

    def __init__(
        self, kind: type[Memory], spec: ReplaySpec, initial: ReplayState, *, compiled: bool
    ) -> None:
        require_cuda(spec)
        super().__init__(kind, spec, initial)
        self.compiled = compiled
        self._batch: Batch | None = None

    @cached_property
    def graph(self) -> torch.cuda.CUDAGraph:
        """The graph of the step, compiled with the first options that Inductor manages."""
        if not self.compiled:
            return self._capture(self.step)
        *others, last = OPTIONS
        for options in others:
            try:
                return self._capture(self._compile(options))
            except Exception:  # noqa: BLE001  whatever Inductor raises
                torch.compiler.reset()
        return self._capture(self._compile(last))

    def _compile(self, options: dict[str, Any]) -> Callable[[], Batch]:
        compiled: Callable[[], Batch] = torch.compile(
            self.step, fullgraph=True, dynamic=False, options=options
        )
        return compiled

    def _capture(self, step: Callable[[], Batch]) -> torch.cuda.CUDAGraph:
        def kept() -> None:
            self._batch = step()

        with torch.no_grad():
            return capture(kept, self.memory.state())

    def run(self, steps: int) -> None:
        replay = self.graph.replay
        for _ in range(steps):
            replay()

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def last(self) -> Batch:
        assert self._batch is not None
        return Batch(*(values.cpu().numpy().copy() for values in self._batch))

    def close(self) -> None:
        compiled = self.compiled
        self.__dict__.clear()
        if compiled:
            torch.compiler.reset()
        torch.cuda.empty_cache()


def tree_graph(spec: ReplaySpec, initial: ReplayState) -> ReplayGraph:
    """The two-level tree, op by op."""
    return ReplayGraph(TwoLevelTree, spec, initial, compiled=False)


def tree_compile_graph(spec: ReplaySpec, initial: ReplayState) -> ReplayGraph:
    """The two-level tree, compiled."""
    return ReplayGraph(TwoLevelTree, spec, initial, compiled=True)


def prefix_graph(spec: ReplaySpec, initial: ReplayState) -> ReplayGraph:
    """Prefix sums, op by op."""
    return ReplayGraph(PrefixSums, spec, initial, compiled=False)


def prefix_compile_graph(spec: ReplaySpec, initial: ReplayState) -> ReplayGraph:
    """Prefix sums, compiled."""
    return ReplayGraph(PrefixSums, spec, initial, compiled=True)
