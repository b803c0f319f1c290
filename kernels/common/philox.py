"""Philox 4x32-10 on the host (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

Counter-based: a draw is a function of its key and counter, so that the host and a kernel that
agree on (seed, position, step, tag) agree on the number, in whatever order they ask.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox4x32(counter: ArrayLike, key: tuple[int, int]) -> NDArray[np.uint32]:
    """Ten rounds of Philox.

    Args:
        counter: uint32 [..., 4].
        key: two 32-bit words.

    Returns:
        uint32 [..., 4].
    """
    words = np.asarray(counter, dtype=np.uint64)
    c0, c1, c2, c3 = (words[..., i] for i in range(4))
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            p0 & _MASK,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def philox_uniform(
    seed: int, position: ArrayLike, step: ArrayLike, tag: int
) -> NDArray[np.float64]:
    """Two doubles in [0, 1) with 53 random bits for each position.

    Args:
        seed: 64 bits, the key.
        position: counter word 0 (uint32, broadcast with `step`).
        step: counter word 1.
        tag: counter word 2, one for each use (`layout.StreamTag`).

    Returns:
        float64 [..., 2].
    """
    pos, stp = np.broadcast_arrays(
        np.asarray(position).astype(np.uint32), np.asarray(step).astype(np.uint32)
    )
    counter = np.zeros((*pos.shape, 4), np.uint32)
    counter[..., 0], counter[..., 1], counter[..., 2] = pos, stp, tag
    words = philox4x32(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)).astype(np.uint64)
    high, low = words[..., 0::2] >> np.uint64(5), words[..., 1::2] >> np.uint64(6)
    bits = (high << np.uint64(26)) | low
    return bits.astype(np.float64) * 2.0**-53
