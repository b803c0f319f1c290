"""From the parameters' gradients to what a step leaves behind, for any network, in one launch.

What follows the backward passes of a learning step::

    component_norms, apply_budget       each component of the gradient held to its share
    vaccine_partial, project_gradient   where ``with_vaccine`` is not 0
    grad_norm                           clip factor and skip flag
    adam_step, target_update            of the seven groups
    batch_stats, publish
    iqn_readiness                       where ``readies`` is not 0
    iql_modulate                        where ``modulates`` is not 0

with their meaning, and their numbers but for the order of sums; and Adam multiplies by reciprocals
of its bias corrections. A step without a budget has ``budget_norm`` 0 and no share of 0. `grad` is
changed as by the kernels replaced, but not where the step is skipped.

**One wait for all norms.** The gradient that Adam gets is, element by element::

    s g + e a - f v     g: grad, a: aux, v: vaccine

with a scale s for each group, e for the denoising loss, and the projection's factor f. Its square,
and the products that s, e and f are made from, follow from six sums of products of g, a and v over
each group: all are formed before any scale is known, and blocks wait for one another once.

The sums are float64. A tile is `TILE` parameters of one group, and four of a thread: a thread adds
its four in order, a warp its threads as `reduce` does, a tile its eight warps in order. Of the rows
of 32 tiles, warp w takes rows w, w + 16, …: it adds a row's tiles of a group as `reduce` does, and
rows in order; the warps are added in order. So the grid does not change the numbers.

Each gradient is within float32, and a sum of two may not be. The kernels replaced would find such
an element; here a step is skipped if the sum of the components' scaled norms is beyond float32, and
so is one with a projection if twice that sum is.

``vaccinated`` has a bit for each group in which the vaccine's gradient counts; in others it is
taken to be 0, whatever is there. ``barrier`` is the word of the wait (`grid_barrier.cuh`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import ADAM_GROUPS, Counter, Schedule
from onegraph.kernels.learner.apply_budget import scaled
from onegraph.kernels.learner.batch_stats import Stat, batch_stats
from onegraph.kernels.learner.budget import (
    COMPONENT_OF,
    NORM_COLUMNS,
    Component,
    budget_scales,
    component_squares,
)
from onegraph.kernels.learner.iql_modulate import iql_modulate
from onegraph.kernels.learner.iqn_readiness import iqn_readiness
from onegraph.kernels.learner.publish import publish
from onegraph.kernels.learner.reduce import WARP, lane_sum

#: Threads of a block, and of a team that has a tile.
BLOCK, TEAM = 512, 256

#: Parameters of a tile.
TILE = 4 * TEAM

#: Products of the three gradients that are summed where there is more than one of them.
TERMS = 6

#: Tiles that a team holds at most.
MOST_HELD = 7

#: Blocks that the held tiles are spread over: a large GPU has no fewer multiprocessors.
SPREAD = 128

#: Shared memory of a block beside its tiles, in bytes; no less than that.
STATIC_BYTES = 13 * 1024

#: The scalars that say where the groups end.
ENDS = tuple(f"end{group}" for group in range(ADAM_GROUPS))


def tiles_of(ends: Sequence[int]) -> int:
    """Tiles of groups that end there [7], each from the end before it (or not before it)."""
    start = tiles = 0
    for end in ends:
        tiles += -(-max(end - start, 0) // TILE)
        start = max(start, end)
    return tiles


def terms_of(*, with_aux: int, with_vaccine: int) -> int:
    """Sums of a tile."""
    return TERMS if with_aux or with_vaccine else 1


def blocks_of(tiles: int) -> int:
    """One block for what is published, and one for each two tiles."""
    return 1 + -(-tiles // (BLOCK // TEAM))


def slot_bytes(*, with_aux: int, with_vaccine: int) -> int:
    """Shared memory of one held tile of each of a block's teams."""
    return (5 + bool(with_aux) + bool(with_vaccine)) * 4 * BLOCK * 4


def held_of(tiles: int, limit: int, *, with_aux: int, with_vaccine: int) -> int:
    """Tiles that each team holds in shared memory, of which a block may have `limit` bytes.

    As many as a large GPU needs to hold them all; 0 where not one fits.
    """
    need = -(-(blocks_of(tiles) - 1) // SPREAD)
    fit = (limit - STATIC_BYTES) // slot_bytes(with_aux=with_aux, with_vaccine=with_vaccine)
    return max(0, min(max(need, 1), fit, MOST_HELD))


@kernel(
    per="block",
    work="blocks",
    block=BLOCK,
    resident=True,
    shared_of="shared_bytes",
    theta="inout f32",
    m="inout f32",
    v="inout f32",
    target="inout f32",
    grad="inout f32",
    aux="in f32",
    vaccine="in f32",
    decay="in f32",
    shares="in f64",
    partial="out f64",
    barrier="inout u32",
    norms="out f32",
    scales="out f32",
    removed="inout f32",
    clip="out f32",
    skip="out i32",
    counters="in i64",
    schedule="in f64",
    diagnostics="in i64",
    loss="in f32",
    td="inout f32",
    q_taken="in f32",
    record="inout f64",
    history="inout f64",
    ready="inout f64",
    q="in f32",
    v_hi="in f32",
    v_lo="in f32",
    end0="i64",
    end1="i64",
    end2="i64",
    end3="i64",
    end4="i64",
    end5="i64",
    end6="i64",
    tiles="i32",
    blocks="i32",
    held="i32",
    shared_bytes="i32",
    with_aux="i32",
    with_vaccine="i32",
    vaccinated="i32",
    budget_norm="f64",
    max_norm="f64",
    beta1="f32",
    beta2="f32",
    eps="f32",
    every="i64",
    n="i32",
    ring="i32",
    readies="i32",
    ready_decay="f64",
    ready_low="f64",
    ready_high="f64",
    modulates="i32",
    modulate_k="f64",
    modulate_eps="f64",
    modulate_low="f64",
    modulate_high="f64",
)
def update_step(
    theta: NDArray[np.float32],
    m: NDArray[np.float32],
    v: NDArray[np.float32],
    target: NDArray[np.float32],
    grad: NDArray[np.float32],
    aux: NDArray[np.float32],
    vaccine: NDArray[np.float32],
    decay: NDArray[np.float32],
    shares: NDArray[np.float64],
    partial: NDArray[np.float64],
    barrier: NDArray[np.uint32],
    norms: NDArray[np.float32],
    scales: NDArray[np.float32],
    removed: NDArray[np.float32],
    clip: NDArray[np.float32],
    skip: NDArray[np.int32],
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    diagnostics: NDArray[np.int64],
    loss: NDArray[np.float32],
    td: NDArray[np.float32],
    q_taken: NDArray[np.float32],
    record: NDArray[np.float64],
    history: NDArray[np.float64],
    ready: NDArray[np.float64],
    q: NDArray[np.float32],
    v_hi: NDArray[np.float32],
    v_lo: NDArray[np.float32],
    end0: int,
    end1: int,
    end2: int,
    end3: int,
    end4: int,
    end5: int,
    end6: int,
    tiles: int,
    blocks: int,
    held: int,
    shared_bytes: int,
    with_aux: int,
    with_vaccine: int,
    vaccinated: int,
    budget_norm: np.float64,
    max_norm: np.float64,
    beta1: np.float32,
    beta2: np.float32,
    eps: np.float32,
    every: int,
    n: int,
    ring: int,
    readies: int,
    ready_decay: np.float64,
    ready_low: np.float64,
    ready_high: np.float64,
    modulates: int,
    modulate_k: np.float64,
    modulate_eps: np.float64,
    modulate_low: np.float64,
    modulate_high: np.float64,
) -> None:
    """One step of the parameters by their gradients; see the module's text.

    ``aux``, ``vaccine``, ``ready``, and ``q``, ``v_hi`` and ``v_lo`` [n] are not touched by a step
    without the part that they are of, nor is ``removed`` [1] by one without a vaccine. ``partial``
    is [tiles, `terms_of`]. ``blocks`` (`blocks_of`), ``held`` (`held_of`) and ``shared_bytes``,
    that many slots (`slot_bytes`), shape the launch alone; the top bit of `barrier` flips.

    Raises:
        ValueError: scalars that say different things of the launch's shape.
    """
    del blocks
    ends = (end0, end1, end2, end3, end4, end5, end6)
    _check(ends, tiles, held, shared_bytes, with_aux, with_vaccine)
    barrier[0] ^= np.uint32(1 << 31)
    groups = list(_ranges(ends))
    g, a, x = (np.zeros(max(*ends, 0), np.float32) for _ in range(3))
    for group, here in groups:
        if not (with_aux and group == Counter.ADAM_DENOISE):
            g[here] = grad[here]
        if with_aux:
            a[here] = aux[here]
        if with_vaccine and vaccinated >> group & 1:
            x[here] = vaccine[here]

    with np.errstate(all="ignore"):
        terms = _terms(g, a, x, groups, single=not (with_aux or with_vaccine))
        partial[: terms.size] = terms.reshape(-1)
        totals = _totals(terms, groups)
        columns = np.zeros(NORM_COLUMNS)
        columns[:ADAM_GROUPS] = totals[:, 0]
        columns[ADAM_GROUPS] = lane_sum(totals[:, 2], WARP)
        lengths = np.sqrt(component_squares(columns))
        scale = budget_scales(lengths, shares[: len(Component)], float(budget_norm))
        extra = scale[Component.DENOISE] if with_aux else np.float32(0.0)
        own = scale[[COMPONENT_OF[Counter(group)] for group in range(ADAM_GROUPS)]]
        norm, factor, finite = _verdict(totals, own, extra, lengths * scale, with_aux)
        clip[0] = norm
        clip[1] = (max_norm / norm if max_norm > 0.0 and norm > max_norm else 1.0) * finite
        skip[0] = not finite
        norms[: len(Component)], scales[: len(Component)] = lengths, scale
    if with_vaccine:
        removed[0] = factor

    for group, here in groups if finite else ():
        with np.errstate(all="ignore"):
            total = scaled(g[here], own[group])
            if with_aux:
                total += scaled(a[here], extra)
            if factor:
                total = (total - np.float64(factor) * x[here]).astype(np.float32)
            grad[here] = total
            p, mean, square = theta[here], m[here], v[here]
            _adam(p, mean, square, total * clip[1], group, schedule, decay, beta1, beta2, eps)
            _follow(target[here], p, schedule, counters, every)
    stats = np.empty(len(Stat))
    batch_stats(loss, td, q_taken, stats, n=n)
    publish(stats, clip, counters, schedule, diagnostics, skip, record, history, ring=ring)
    if readies:
        iqn_readiness(loss, skip, ready, n=n, decay=ready_decay, low=ready_low, high=ready_high)
    if modulates:
        iql_modulate(
            td,
            q,
            v_hi,
            v_lo,
            rows=n,
            k=modulate_k,
            eps=modulate_eps,
            low=modulate_low,
            high=modulate_high,
        )


def _check(
    ends: Sequence[int], tiles: int, held: int, shared_bytes: int, with_aux: int, with_vaccine: int
) -> None:
    if tiles != tiles_of(ends):
        raise ValueError(f"groups that end at {ends} are {tiles_of(ends)} tiles, not {tiles}")
    slot = slot_bytes(with_aux=with_aux, with_vaccine=with_vaccine)
    if not 1 <= held <= MOST_HELD or shared_bytes != held * slot:
        raise ValueError(
            f"{held} held tiles in {shared_bytes} bytes of shared memory; hold 1 to {MOST_HELD} of"
            f" {slot} bytes each (held_of)"
        )


def _ranges(ends: Sequence[int]) -> list[tuple[int, slice]]:
    """The groups that have parameters, and where those are."""
    found, start = [], 0
    for group, end in enumerate(ends):
        if end > start:
            found.append((group, slice(start, end)))
            start = end
    return found


def _terms(
    g: NDArray[np.float32],
    a: NDArray[np.float32],
    x: NDArray[np.float32],
    groups: Sequence[tuple[int, slice]],
    *,
    single: bool,
) -> NDArray[np.float64]:
    """Sums of products of each tile [tiles, 1 or 6]."""
    pairs = [(g, g)] if single else [(g, g), (g, a), (a, a), (g, x), (a, x), (x, x)]
    parts = [np.zeros((0, len(pairs)))]
    for _, here in groups:
        count = -(-(here.stop - here.start) // TILE)
        sums = np.zeros((count, len(pairs)))
        for term, (one, other) in enumerate(pairs):
            products = np.zeros(count * TILE)
            products[: here.stop - here.start] = one[here].astype(np.float64) * other[here]
            fours = products.reshape(count, TEAM // WARP, WARP, 4)
            lanes = fours[..., 0].copy()
            for j in range(1, 4):
                lanes += fours[..., j]
            warps = lane_sum(lanes, WARP)
            total = warps[:, 0].copy()
            for w in range(1, TEAM // WARP):
                total += warps[:, w]
            sums[:, term] = total
        parts.append(sums)
    return np.concatenate(parts)


def _totals(terms: NDArray[np.float64], groups: Sequence[tuple[int, slice]]) -> NDArray[np.float64]:
    """The terms of each group [7, 6] from those of the tiles."""
    warps = BLOCK // WARP
    rows = -(-len(terms) // (WARP * warps)) * warps
    padded = np.zeros((rows * WARP, terms.shape[1]))
    padded[: len(terms)] = terms
    totals = np.zeros((ADAM_GROUPS, TERMS))
    first = 0
    for group, here in groups:
        last = first - (-(here.stop - here.start) // TILE)
        own = np.zeros_like(padded)
        own[first:last] = padded[first:last]
        first = last
        by_row = lane_sum(own.T.reshape(terms.shape[1], rows, WARP), WARP)
        columns = np.zeros((terms.shape[1], warps))
        for row in range(0, rows, warps):
            columns += by_row[:, row : row + warps]
        total = columns[:, 0].copy()
        for w in range(1, warps):
            total += columns[:, w]
        totals[group, : terms.shape[1]] = total
    return totals


def _verdict(
    totals: NDArray[np.float64],
    own: NDArray[np.float32],
    extra: np.float32,
    lengths: NDArray[np.float64],
    with_aux: int,
) -> tuple[float, float, bool]:
    """Norm of the gradient, factor of the vaccine's, and whether all of it is finite.

    `lengths` [6] are the components' scaled norms, `own` [7] the groups' scales.
    """
    gg, ga, aa, gv, av, vv = totals.T
    s, e = own.astype(np.float64), np.float64(extra)
    square = np.where(s != 0.0, s * s * gg, 0.0)
    cross = np.where(s != 0.0, s * gv, 0.0)
    if e:
        square += e * e * aa
        cross += e * av
        square += np.where(s != 0.0, 2.0 * s * e * ga, 0.0)
    norm, along, vaccine = (float(lane_sum(sums, WARP)) for sums in (square, cross, vv))
    conflict = along < 0.0 and np.isfinite(along) and np.isfinite(vaccine) and vaccine > 0.0
    factor = along / vaccine if conflict else 0.0
    if conflict:
        norm -= factor * along
    norm = 0.0 if norm < 0.0 else float(np.sqrt(norm))
    bound = float(np.sum(np.where(np.isnan(lengths), 0.0, lengths))) * (2.0 if conflict else 1.0)
    beyond = (with_aux or conflict) and bound > np.finfo(np.float32).max
    return norm, factor, bool(np.isfinite(norm)) and not beyond


def _adam(
    p: NDArray[np.float32],
    mean: NDArray[np.float32],
    square: NDArray[np.float32],
    g: NDArray[np.float32],
    group: int,
    schedule: NDArray[np.float64],
    decay: NDArray[np.float32],
    beta1: np.float32,
    beta2: np.float32,
    eps: np.float32,
) -> None:
    """`adam_step` of one group, in place, times the reciprocals of the bias corrections."""
    one = np.float32(1.0)
    bias1 = one / np.float32(schedule[Schedule.BIAS + 2 * group])
    bias2 = one / np.float32(schedule[Schedule.BIAS + 2 * group + 1])
    mean *= beta1
    mean += (one - beta1) * g
    square *= beta2
    square += ((one - beta2) * g) * g
    change = (mean * bias1) / (np.sqrt(square * bias2) + eps)
    p -= np.float32(schedule[Schedule.LEARNING_RATE]) * (change + decay[group] * p)


def _follow(
    target: NDArray[np.float32],
    p: NDArray[np.float32],
    schedule: NDArray[np.float64],
    counters: NDArray[np.int64],
    every: int,
) -> None:
    """`target_update` of one group, in place."""
    if every > 0 and counters[Counter.ADAM_TRUNK] % every:
        return
    tau = np.float32(schedule[Schedule.TAU])
    if every > 0 or tau == 1.0:
        target[:] = p
    else:
        target += tau * (p - target)
