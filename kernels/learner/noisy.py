"""Factorised Gaussian noise of linear layers (Fortunato et al. 2018, "Noisy networks", section 3).

A noisy layer has, beside its weight and bias (mu), a sigma for each of their elements. With
``f(x) = sign(x) sqrt|x|`` of standard normal numbers, one for each input and one for each output::

    weight[i, j] = mu[i, j] + sigma[i, j] * (f_in[i] * f_out[j])      (equations 10 and 11)
    bias[j]      = mu[j]    + sigma[j]    * f_out[j]

A factor is formed in float64 and rounded to float32 once; the rest is float32 in the order written.
The bias counts as one more row of the weight, whose input factor is 1.

Factor i of pass p is drawn from Philox at (4 i + p, step, NOISE). The step is the learning step's
number, or for the acting pass the collecting step's. The factors of all layers are numbered
through: a layer's inputs, then its outputs.

``table`` is int64 [layers, 8], a layer's `NoisyLayer` fields in order. Layers are worked on in
tiles of 32 x 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import StreamTag
from onegraph.kernels.common.normal import normal_pair
from onegraph.kernels.common.philox import philox_uniform

F = TypeVar("F", bound=np.floating[Any])

TILE = 32
COLUMNS = 8


class NoisyPass(IntEnum):
    """The passes through a network, each with noise of its own."""

    ONLINE = 0
    TARGET = 1
    SELECT = 2
    ACT = 3


class NoisyLayer(NamedTuple):
    """A row of the table: offsets in the parameters, widths, first factor and first tile."""

    weight: int
    bias: int
    weight_sigma: int
    bias_sigma: int
    fan_in: int
    fan_out: int
    factor: int
    tile: int

    @property
    def tiles(self) -> int:
        return -(-(self.fan_in + 1) // TILE) * -(-self.fan_out // TILE)

    def places(self) -> Iterator[tuple[slice, slice, tuple[int, int]]]:
        """Where the values and where the sigmas of weight and bias stand, and their shape."""
        for mu, sigma, rows in (
            (self.weight, self.weight_sigma, self.fan_in),
            (self.bias, self.bias_sigma, 1),
        ):
            size = rows * self.fan_out
            yield slice(mu, mu + size), slice(sigma, sigma + size), (rows, self.fan_out)

    def split(self, factors: NDArray[F]) -> tuple[NDArray[F], NDArray[F]]:
        """Its input and output factors from those of all layers."""
        middle = self.factor + self.fan_in
        return factors[self.factor : middle], factors[middle : middle + self.fan_out]


def layers_of(table: NDArray[np.int64], layers: int) -> list[NoisyLayer]:
    """The first `layers` rows of the flat table."""
    return [NoisyLayer(*row) for row in table[: layers * COLUMNS].reshape(-1, COLUMNS).tolist()]


def squashed(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """``sign(x) sqrt|x|``."""
    return np.copysign(np.sqrt(np.abs(x)), x)


def noise_factors(count: int, noisy_pass: int, step: int, seed: int) -> NDArray[np.float32]:
    """The first `count` factors of a pass at a step."""
    position = np.arange(count) * len(NoisyPass) + noisy_pass
    normal = normal_pair(philox_uniform(seed, position, step, StreamTag.NOISE))[:, 0]
    return squashed(normal).astype(np.float32)


def noise_of(f_in: NDArray[F], f_out: NDArray[F]) -> tuple[NDArray[F], NDArray[F]]:
    """What the sigmas of weight [fan_in, fan_out] and bias [1, fan_out] are multiplied by."""
    return np.outer(f_in, f_out), f_out[None]


def noisy_value(mu: NDArray[F], sigma: NDArray[F], noise: NDArray[F]) -> NDArray[F]:
    """The effective weight or bias."""
    effective: NDArray[F] = mu + sigma * noise
    return effective


def sigma_gradient(grad: NDArray[F], noise: NDArray[F]) -> NDArray[F]:
    """Gradient in sigma from the one in the effective weight or bias, which is also mu's."""
    product: NDArray[F] = grad * noise
    return product
