"""Whether two runs of one loop came to the same numbers, and how far apart they are if not.

On one device, stages must not move a bit, but for those that say that they agree to rounding. Where
bits move, two norms say how much that means: the difference against the numbers themselves, and
against the distance that they travelled.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What is asked of runs that can't agree bit for bit (host against CUDA, another library, a stage
#: that adds up in another order): the 2-norm of the difference against that of the numbers, and
#: against that of the way travelled.
RELATIVE_BOUND = 1e-5
TRAVELLED_BOUND = 1e-3


def digest(array: NDArray[Any]) -> str:
    """SHA-256 of dtype, shape and bits."""
    head = f"{array.dtype.str}{list(array.shape)}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def first_unequal(p: NDArray[Any], q: NDArray[Any]) -> int:
    """The first flat element whose bits differ; -1 if none does. Shapes and dtypes are the same."""
    width = p.dtype.itemsize
    bits = [np.ascontiguousarray(a).view(np.uint8).reshape(-1, width) for a in (p, q)]
    unequal = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    return int(unequal[0]) if unequal.size else -1


@dataclass(frozen=True)
class Difference:
    """How parameters p differ from those of a reference, q, that began at p0 as p did.

    Attributes:
        against: the reference's label.
        equal: the same bits after every step.
        step: the first step after which they differ, from 0; -1 if none.
        element: the first flat element that differs after that step, with both values.
        max_abs: the largest ``|p - q|`` at the end.
        relative: ``||p - q|| / ||q||`` at the end, in the 2-norm.
        travelled: ``||p - q|| / ||q - p0||`` at the end.
    """

    against: str
    equal: bool
    step: int = -1
    element: int = -1
    value: float = 0.0
    reference: float = 0.0
    max_abs: float = 0.0
    relative: float = 0.0
    travelled: float = 0.0

    @property
    def within_bounds(self) -> bool:
        """Whether a comparison that can't be exact would accept it."""
        return self.relative <= RELATIVE_BOUND and self.travelled <= TRAVELLED_BOUND

    def __str__(self) -> str:
        if self.equal:
            return "same bits"
        return f"{self.relative:.1e} of ‖q‖, {self.travelled:.1e} of the way"


def distance(p: NDArray[Any], q: NDArray[Any], p0: NDArray[Any]) -> tuple[float, float, float]:
    """``(max_abs, relative, travelled)`` of `Difference`, in float64."""
    p, q, p0 = (np.asarray(a, np.float64).reshape(-1) for a in (p, q, p0))
    with np.errstate(all="ignore"):  # an infinite or a NaN difference is the answer, not an error
        gap = p - q
        norm = float(np.linalg.norm(gap))
        return (
            float(np.max(np.abs(gap), initial=0.0)),
            _ratio(norm, float(np.linalg.norm(q))),
            _ratio(norm, float(np.linalg.norm(q - p0))),
        )


def _ratio(part: float, whole: float) -> float:
    if whole:
        return part / whole
    return float("inf") if part else 0.0
