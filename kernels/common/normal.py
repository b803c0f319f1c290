"""Standard normal numbers from uniform ones: the Box-Muller transform, the same bits on both sides.

Box & Muller 1958, "A note on the generation of random normal deviates"::

    r  = sqrt(-2 log(1 - u0))
    z0 = r cos(2 pi u1)
    z1 = r sin(2 pi u1)

With u0 in [0, 1) of 53 bits the logarithm's argument is exact and never 0, so that |z| is at most
sqrt(106 log 2), 8.57. The angles are folded into [0, 1] half turns, exactly, for `cospi64`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.detmath import cospi64, log64


def normal_pair(uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two independent standard normal numbers [..., 2] from two uniforms in [0, 1) [..., 2]."""
    radius = np.sqrt(-2.0 * log64(1.0 - uniforms[..., 0]))
    turn = 2.0 * uniforms[..., 1]  # half turns, in [0, 2)
    shifted = np.abs(turn - 0.5)  # sin(pi x) = cos(pi (x - 1/2)), which is even
    cosine = cospi64(np.where(turn > 1.0, 2.0 - turn, turn))
    sine = cospi64(np.where(shifted > 1.0, 2.0 - shifted, shifted))
    return np.stack([radius * cosine, radius * sine], axis=-1)
