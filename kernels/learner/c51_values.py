"""Action values of a categorical head: the mean of each action's distribution (see `categorical`).

head [rows, (A + d) K], values [rows, A], which `act` (with a stride of A) and `c51_loss` read
(Bellemare et al. 2017, section 4). Float64, rounded once. A distribution of NaN has the value NaN,
which the greedy action counts as -infinity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.categorical import (
    MAX_ATOMS,
    action_logits,
    expected_value,
    softmax_parts,
    support,
)


@kernel(
    per="warp",
    work="rows*actions",
    block=128,
    head="in f32",
    values="out f32",
    rows="i32",
    actions="i32",
    dueling="i32",
    atoms="i32",
    v_min="f64",
    v_max="f64",
)
def c51_values(
    head: NDArray[np.float32],
    values: NDArray[np.float32],
    *,
    rows: int,
    actions: int,
    dueling: int,
    atoms: int,
    v_min: float,
    v_max: float,
) -> None:
    """Write the expected values [rows, A]; K is 2..`MAX_ATOMS`."""
    if not 2 <= atoms <= MAX_ATOMS:
        raise ValueError(f"{atoms} atoms; a head has 2 to {MAX_ATOMS}")
    blocks = actions + (1 if dueling else 0)
    matrix = head[: rows * blocks * atoms].reshape(rows, blocks, atoms)
    places = support(atoms, v_min, v_max)
    out = values[: rows * actions].reshape(rows, actions)
    with np.errstate(all="ignore"):
        for a in range(actions):
            logits = action_logits(matrix, np.full(rows, a), actions, dueling)
            _, e, total = softmax_parts(logits)
            out[:, a] = expected_value(e, total, places)
