"""The full network's parameters in one flat tensor: sections of tensors, each a view.

Tensors of one shape that are worked on together lie stacked: the residual blocks' layers, and both
value networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .problem import FullSpec

#: Tensors start at multiples of this many floats.
ALIGN = 8

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """A tensor: its shape, and the parameters that it holds, stacked if there are several."""

    shape: Shape
    holds: tuple[str, ...]
    stacked: bool = False


def linear(name: str, fan_in: int, fan_out: int) -> dict[str, Stored]:
    """Weight and bias of a linear layer."""
    weight, bias = f"{name}.weight", f"{name}.bias"
    return {weight: Stored((fan_out, fan_in), (weight,)), bias: Stored((fan_out,), (bias,))}


class Section:
    """Tensors that stand together."""

    def __init__(self, tensors: Mapping[str, Stored]) -> None:
        self.tensors = dict(tensors)
        self._sizes: list[int] = []
        self._at: dict[str, int] = {}
        for name, stored in tensors.items():
            size = prod(stored.shape)
            self._at[name] = len(self._sizes)
            self._sizes.append(size)
            if size % ALIGN:
                self._sizes.append(-size % ALIGN)
        self.size = sum(self._sizes)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """From [..., size] to [..., *shape] of each tensor."""
        pieces = flat.split(self._sizes, -1)
        return {
            name: pieces[self._at[name]].unflatten(-1, stored.shape)
            for name, stored in self.tensors.items()
        }

    def end_of(self, *prefixes: str) -> int:
        """Where the tensors whose names start so end; they are the first."""
        last = max(self._at[name] for name in self.tensors if name.startswith(prefixes))
        stop = last + 1
        if sum(self._sizes[:stop]) % ALIGN:
            stop += 1
        return sum(self._sizes[:stop])


class Parameters:
    """The sections in their order: trunk, heads, the value networks (two copies of one section),
    decoder. The trunk and the heads are the Q network, which has a target.
    """

    def __init__(self, spec: FullSpec) -> None:
        s, h, r = spec.states, spec.hidden[-1], spec.residual_blocks
        token, stride = s // spec.attention_groups, spec.actions + 1
        widths = (s, *spec.hidden)
        layers = [f"block.{i}.linear{j}" for i in range(r) for j in (1, 2)]

        def stacked(shape: Shape, names: Sequence[str]) -> Stored:
            return Stored((len(names), *shape), tuple(names), stacked=True)

        self.trunk = Section(
            {
                "gate.logit": Stored((s,), ("gate.logit",)),
                **linear("attn.qkv", token, 3 * token),
                **linear("attn.out", token, token),
                **{
                    name: tensor
                    for i, (a, b) in enumerate(zip(widths, spec.hidden, strict=False))
                    for name, tensor in linear(f"hidden.{i}", a, b).items()
                },
                "norm.scale": stacked((h,), [f"block.{i}.norm.scale" for i in range(r)]),
                "norm.shift": stacked((h,), [f"block.{i}.norm.shift" for i in range(r)]),
                "blocks.weight": stacked((h, h), [f"{layer}.weight" for layer in layers]),
                "blocks.bias": stacked((h,), [f"{layer}.bias" for layer in layers]),
            }
        )
        self.heads = Section(
            {
                **linear("iqn.embed", spec.cosines, h),
                **linear("head", h, stride),
                **linear("iqn.head", h, stride),
            }
        )
        self.iql = Section(
            {**linear("hidden", s, spec.iql_hidden), **linear("value", spec.iql_hidden, 1)}
        )
        self.decoder = Section(
            {
                **linear("denoise.hidden", h, spec.denoise_hidden),
                **linear("denoise.state", spec.denoise_hidden, s),
            }
        )
        self.q_size = self.trunk.size + self.heads.size
        gate, attention = self.trunk.end_of("gate"), self.trunk.end_of("gate", "attn")
        #: Gate, attention, the rest of the Q network, each value network, decoder.
        self.component_sizes = [
            gate,
            attention - gate,
            self.q_size - attention,
            self.iql.size,
            self.iql.size,
            self.decoder.size,
        ]
        self.size = self.q_size + 2 * self.iql.size + self.decoder.size

    def sections(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Trunk [t], heads [h], value networks [2, i] and decoder [d] of [size]."""
        sizes = [self.trunk.size, self.heads.size, 2 * self.iql.size, self.decoder.size]
        trunk, heads, iql, decoder = flat.split(sizes)
        return trunk, heads, iql.view(2, -1), decoder

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of [size] by the names that our network has for them."""
        trunk, heads, iql, decoder = self.sections(flat)
        found: dict[str, Tensor] = {}
        for section, values in (
            (self.trunk, trunk),
            (self.heads, heads),
            (self.decoder, decoder),
        ):
            for name, view in section.views(values).items():
                stored = section.tensors[name]
                parts = view.unbind() if stored.stacked else (view,)
                found |= dict(zip(stored.holds, parts, strict=True))
        for prefix, values in zip(("iql", "iql_low"), iql, strict=True):
            views = self.iql.views(values)
            found |= {f"{prefix}.{name}": view for name, view in views.items()}
        return found

    def load(self, weights: Mapping[str, NDArray[np.float32]], device: torch.device) -> Tensor:
        """A flat tensor [size] of these weights."""
        flat = torch.zeros(self.size, device=device)
        views = self.named(flat)
        if views.keys() != weights.keys():
            raise ValueError(f"the peer's network differs by {views.keys() ^ weights.keys()}")
        for name, view in views.items():
            view.copy_(torch.from_numpy(weights[name]))
        return flat
