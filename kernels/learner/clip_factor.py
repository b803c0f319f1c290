"""The global gradient norm, the factor that clips it, and the one flag that skips a step.

``norm = sqrt(sum of partial)``; ``scale = max_norm / norm`` where `max_norm` > 0 and the norm
exceeds it, else 1 (Pascanu et al. 2013). A norm that is NaN or infinite sets ``skip`` to 1 and the
scale to 0: the parameters, their moments, their counters and the target network then stay as they
are for this step. ``clip`` is float32 [norm, scale], rounded once from float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.reduce import LANES, lane_sum


@kernel(
    per="one",
    block=LANES,
    partial="in f64",
    clip="out f32",
    skip="out i32",
    parts="i32",
    max_norm="f64",
)
def clip_factor(
    partial: NDArray[np.float64],
    clip: NDArray[np.float32],
    skip: NDArray[np.int32],
    *,
    parts: int,
    max_norm: np.float64,
) -> None:
    """Write (norm, scale) to `clip` [2] and the flag to `skip` [1]."""
    with np.errstate(all="ignore"):
        norm = np.sqrt(lane_sum(partial[:parts]))
        finite = np.isfinite(norm)
        scale = max_norm / norm if max_norm > 0.0 and norm > max_norm else 1.0
        clip[0] = norm
        clip[1] = scale if finite else 0.0
        skip[0] = 0 if finite else 1
