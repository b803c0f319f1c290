"""What the environments share: the random start of an episode.

An environment steps E lanes at once. ``lane_episode`` counts the episodes that began in a lane; the
caller zeroes it once, before the first reset. The number of the present episode is one less, and
its id, which never repeats, is ``lane + E x number``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import StreamTag
from onegraph.kernels.common.philox import philox_uniform


def reset_draw(seed: int, episode: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """One of 0..count-1 for each lane, by Philox at (lane, number of its `episode`, RESET).

    Args:
        seed: the key.
        episode: int64 [E], the number of the episode that begins in each lane.
        count: how many starts there are; below 1 gives 0.
    """
    if count < 1:
        return np.zeros(len(episode), np.int64)
    draws = philox_uniform(seed, np.arange(len(episode)), episode, StreamTag.RESET)[:, 0]
    return np.minimum((draws * float(count)).astype(np.int64), count - 1)
