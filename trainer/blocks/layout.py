"""Where each parameter stands: named tensors in one flat float32 buffer, a range for each group.

All parameters lie in one buffer, so that the optimiser and the target update are one kernel each.
The tensors of an Adam group stand together, so that a group is a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import ADAM_GROUPS, Counter, StreamTag
from onegraph.kernels.common.philox import philox_uniform
from onegraph.stages.program import Ref

#: Tensors start at multiples of this many floats, for 16-byte loads with room to spare.
ALIGN = 8


class Group(IntEnum):
    """Groups of parameters with Adam counters of their own, by their place among the counters."""

    TRUNK = Counter.ADAM_TRUNK
    SELECTIVITY = Counter.ADAM_SELECTIVITY
    DENOISE = Counter.ADAM_DENOISE
    IQL = Counter.ADAM_IQL
    IQL_LOW = Counter.ADAM_IQL_LOW
    IQN = Counter.ADAM_IQN
    ATTENTION = Counter.ADAM_ATTENTION


@dataclass(frozen=True)
class TensorSpec:
    """A parameter before it has a place.

    Attributes:
        name: as in ``block.0.norm.scale``; the last word says what it is.
        shape: a weight is [fan_in, fan_out], a bias [fan_out].
        bound: initial values are uniform within `bound` of `value`; 0: constant.
        rows: rows of a weight that are not padding, which is zero; 0: all.
    """

    name: str
    shape: tuple[int, ...]
    group: Group = Group.TRUNK
    bound: float = 0.0
    value: float = 0.0
    rows: int = 0


@dataclass(frozen=True)
class Tensor(TensorSpec):
    """A parameter and where it starts, in floats."""

    offset: int = 0

    @property
    def size(self) -> int:
        return prod(self.shape)

    def of(self, buffer: str) -> Ref:
        """The tensor in a buffer that is laid out like the parameters."""
        return Ref(buffer, self.offset, self.size)

    def values(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        """The tensor's view of a flat array [size]."""
        return flat[self.offset : self.offset + self.size].reshape(self.shape)


class Layout:
    """Places for tensors: by group, then in the order given, each aligned; gaps hold zeros.

    Raises:
        ValueError: two tensors have one name.
    """

    def __init__(self, specs: Iterable[TensorSpec]) -> None:
        tensors: dict[str, Tensor] = {}
        self.ends = [0] * ADAM_GROUPS  #: of each group's range, in the groups' order
        offset = 0
        ordered = sorted(specs, key=lambda spec: spec.group)
        for spec in ordered:
            if spec.name in tensors:
                raise ValueError(f"two tensors are called {spec.name!r}; name them apart")
            tensors[spec.name] = tensor = Tensor(**vars(spec), offset=offset)
            offset += -(-tensor.size // ALIGN) * ALIGN
            self.ends[spec.group] = offset
        for group in range(1, ADAM_GROUPS):
            self.ends[group] = max(self.ends[group], self.ends[group - 1])
        self._tensors = tensors
        self.size = offset

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors.values())

    def range_of(self, group: Group) -> tuple[int, int]:
        """Start and end of a group's parameters, in floats; equal if it has none."""
        return (self.ends[group - 1] if group else 0), self.ends[group]

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Parameters [size] before the first step; a tensor's draws depend on its place alone."""
        params = np.zeros(self.size, np.float32)
        for i, tensor in enumerate(self):
            values = np.full(tensor.size, tensor.value)
            if tensor.bound:
                u = philox_uniform(seed, np.arange(tensor.size), i, StreamTag.INIT)[:, 0]
                values += (2.0 * u - 1.0) * tensor.bound
            shaped = values.astype(np.float32).reshape(tensor.shape)
            if tensor.rows:
                shaped[tensor.rows :] = 0.0
            tensor.values(params)[...] = shaped
        return params
