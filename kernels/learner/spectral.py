"""Spectral normalisation of weight matrices (Miyato et al. 2018), by one power iteration a step.

For a matrix W [rows, cols] with unit vectors u [rows] and v [cols] kept between steps (their
algorithm 1)::

    v     = W^T u / |W^T u|
    u     = W v / |W v|
    sigma = u^T W v                       (equation 19)
    W_n   = W / max(1, sigma / cap)       the cap, where the paper divides by sigma itself

and, u and v held constant (equation 12)::

    dW = cap / sigma (dW_n - (sum of dW_n * W) / sigma * u v^T)    where sigma > cap
       = dW_n                                                      else

A norm that is zero or not finite leaves its vector as it was, so that neither a matrix of zeros nor
one with a NaN spoils u and v for the steps after it. A sigma that is not finite normalises nothing:
the weights go through as they are, for the finite check to find what they give. Weights so large
that a product with u or v overflows float32 count as not finite.

``table`` is int64 [matrices, 5], a matrix's `SpectralMatrix` fields in order. ``vectors`` holds u
and then v of each matrix.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.learner.reduce import WARP, lane_sum

F = TypeVar("F", bound=np.floating[Any])

COLUMNS = 5


class SpectralMatrix(NamedTuple):
    """A row of the table: 0 for the online or 1 for the target parameters, and what stands where.

    Attributes:
        offset: of the matrix [rows, cols] in the parameters.
        vectors: of its u [rows] in the vectors; its v [cols] follows.
    """

    source: int
    offset: int
    rows: int
    cols: int
    vectors: int

    @property
    def elements(self) -> slice:
        return slice(self.offset, self.offset + self.rows * self.cols)

    def of(self, flat: NDArray[F]) -> NDArray[F]:
        """Its view of a flat array that is laid out like the parameters."""
        return flat[self.elements].reshape(self.rows, self.cols)

    def uv(self, vectors: NDArray[F]) -> tuple[NDArray[F], NDArray[F]]:
        """Views of its u and v."""
        middle = self.vectors + self.rows
        return vectors[self.vectors : middle], vectors[middle : middle + self.cols]


def matrices_of(table: NDArray[np.int64], count: int) -> list[SpectralMatrix]:
    """The first `count` rows of the flat table."""
    return [SpectralMatrix(*row) for row in table[: count * COLUMNS].reshape(-1, COLUMNS).tolist()]


def left_product(w: NDArray[F], u: NDArray[F]) -> NDArray[F]:
    """``W^T u`` [cols]."""
    with np.errstate(all="ignore"):
        return lane_sum((w * u[:, None]).T, WARP)


def right_product(w: NDArray[F], v: NDArray[F]) -> NDArray[F]:
    """``W v`` [rows]."""
    with np.errstate(all="ignore"):
        return lane_sum(w * v, WARP)


def normalised_or(kept: NDArray[F], raw: NDArray[F]) -> NDArray[F]:
    """`raw` over its norm, or `kept` where that is zero or not finite."""
    wide = raw.astype(np.float64)
    with np.errstate(all="ignore"):
        norm = np.sqrt(lane_sum(wide * wide, WARP))
        return (wide / norm).astype(raw.dtype) if np.isfinite(norm) and norm > 0.0 else kept


def sigma_of(u: NDArray[F], raw_u: NDArray[F]) -> float:
    """``u^T W v`` from u and W v."""
    with np.errstate(all="ignore"):
        return float(lane_sum(u.astype(np.float64) * raw_u.astype(np.float64), WARP))


class Iteration(NamedTuple, Generic[F]):
    """What an iteration gives."""

    u: NDArray[F]
    v: NDArray[F]
    sigma: float


def power_iteration(
    w: NDArray[F], u: NDArray[F], v: NDArray[F], *, iterate: bool = True
) -> Iteration[F]:
    """The next u, v and sigma of `w` [rows, cols]; without `iterate` u and v stay."""
    if iterate:
        v = normalised_or(v, left_product(w, u))
    raw_u = right_product(w, v)
    if iterate:
        u = normalised_or(u, raw_u)
    return Iteration(u, v, sigma_of(u, raw_u))


def above_cap(sigma: float, cap: float) -> bool:
    """Whether a matrix of this sigma is scaled."""
    return bool(np.isfinite(sigma)) and sigma > cap


def spectral_gradient(
    grad: NDArray[F], dot: float, u: NDArray[F], v: NDArray[F], sigma: float, cap: float
) -> NDArray[F]:
    """Gradient in W from `grad` in W_n [rows, cols]; `dot` is the sum of their products."""
    if not above_cap(sigma, cap):
        return grad
    turn = (dot / sigma) * np.outer(u.astype(np.float64), v.astype(np.float64))
    return ((cap / sigma) * (grad.astype(np.float64) - turn)).astype(grad.dtype)
