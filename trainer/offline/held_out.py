"""The one-step TD error on transitions that nothing was learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.guards.markers import cold_path
from onegraph.kernels.common.layout import Flag
from onegraph.trainer.offline.transitions import Transitions

if TYPE_CHECKING:
    from onegraph.trainer.trainer import Trainer

#: Rows that are looked at, evenly spread; the values are computed on the host.
MOST_ROWS = 4_096


@cold_path("in the epoch scope, when no step runs")
def held_out_figures(trainer: Trainer, held_out: Transitions) -> dict[str, float]:
    """Mean absolute TD error and mean action value of at most `MOST_ROWS` finite rows.

    The error is |r + gamma (1 - terminated) max_a Q(s', a) - Q(s, a)|, of the online network on
    either side. It says how far the values agree with one another, not how good the policy is.
    Both are NaN without a finite row.
    """
    finite = np.flatnonzero(held_out.finite())
    rows = finite[:: -(-finite.size // MOST_ROWS)] if finite.size else finite
    if not rows.size:
        return {"held_out_td": float("nan"), "held_out_q": float("nan")}
    values = trainer.q_values(np.concatenate([held_out.state[rows], held_out.next_state[rows]]))
    q_tm1 = values[: rows.size][np.arange(rows.size), held_out.action[rows]]
    discount = np.where(held_out.flags[rows] & Flag.TERMINATED, 0.0, trainer.config.learn.gamma)
    td = held_out.reward[rows] + discount * values[rows.size :].max(axis=1) - q_tm1
    return {"held_out_td": float(np.abs(td).mean()), "held_out_q": float(q_tm1.mean())}
