"""The market environment: E lanes that trade one series of bars, in float64, step by step.

A step decides at the close of bar t (the lane's cursor) and goes to the close of bar t + 1. The
action picks a target position from ``positions`` [A]; it is filled at the price that `Fill` names.

`Sizing.EQUITY`: a position is a fraction of equity, f. It is held constant: rebalanced at each fill
and each close, free of charge, so that only a change of target pays. With p the fill price::

    e *= 1 + f_old (p / close_t - 1)
    e *= 1 - (commission + slippage) |f_new - f_old|        both fractions of what is traded
    e *= 1 + f_new (close_t+1 / p - 1)
    e *= 1 - borrow_rate max(-f_new, 0)

`Sizing.CONTRACTS`: a position is a number of contracts, n; slippage is in ticks against the trade,
commission in money per contract and side::

    e += n_old multiplier (p - close_t)
    e -= (slippage tick_size multiplier + commission) |n_new - n_old|
    e += n_new multiplier (close_t+1 - p)
    e -= borrow_rate max(-n_new, 0) multiplier close_t+1

**Ruin**: equity that is not above 0 after any of the four lines, or is not finite in the end (a
price that is not finite does that), ends the episode: TERMINATED, equity exactly 0, the account
flat, and the reward is `floor_reward`. Otherwise the reward is ``log(e' / e)`` or ``(e' - e)
reward_scale`` (`RewardKind`). The float64 log rewards of an episode sum to log(final / initial
equity).

**The end**: bars are those of the half-open window [`first`, `last`). A step that arrives at its
last bar, or is the `max_steps`-th (0: no limit), is TRUNCATED; ruin wins over both. A step asked
for at the last bar itself trades nothing: equity unchanged, reward 0, TRUNCATED. Nothing is
liquidated at the end: the last equity is marked to the last close.

**Observation** [Sp]: the F features of the cursor's bar; position / max |positions|; log(equity /
equity at entry), 0 when flat; h / (h + 10) for h bars held; zeros. A position is entered when it
goes from flat, or changes sign; its entry equity is taken at the fill, before that trade's cost, so
that a new position shows what it cost. The bar of entry counts as held.

**Episodes** begin at bar `first`, or with `random_start` anywhere in [`first`, `last` - 2] with
equal chance (see `lanes`), flat, with `initial_equity`. One that ended begins anew within the same
step: ``obs_t`` is the observation arrived at, ``obs`` the one to act on next. With `reset` other
than 0 every lane begins a new episode, and only ``obs`` and the lane fields are written. The caller
zeroes the lane fields once before the first reset.

**Trace** [E, trace_len, 4] (`TraceField`): one row for each step of the first episode after a
`reset`, so that an evaluation's rows are not written over by what follows it: equity after the
step, position taken, float64 reward, cursor after the step. `LaneI64.TRACED` counts the rows;
`trace_len` 0 turns it off.

An action out of range is taken as the nearest one, and the row is flagged INVALID.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import log64
from onegraph.kernels.common.layout import Flag
from onegraph.kernels.env.lanes import reset_draw

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class LaneF64(IntEnum):
    """Elements of a lane's row in ``lane_f64`` [E, 8]."""

    EQUITY = 0
    POSITION = 1
    ENTRY_EQUITY = 2
    FINAL_EQUITY = 3  # of the lane's last finished episode


class LaneI64(IntEnum):
    """Elements of a lane's row in ``lane_i64`` [E, 8]."""

    CURSOR = 0
    STEPS = 1
    EPISODE = 2  # episodes begun
    HELD = 3
    TRACING = 4
    TRACED = 5


LANE_FIELDS = 8


class Sizing(IntEnum):
    """What a position counts."""

    EQUITY = 0
    CONTRACTS = 1


class Fill(IntEnum):
    """At which price a decision made at bar t's close is filled."""

    NEXT_OPEN = 0
    NEXT_CLOSE = 1
    THIS_CLOSE = 2


class RewardKind(IntEnum):
    """What a step is rewarded with."""

    LOG_RATIO = 0
    SCALED_PNL = 1


class TraceField(IntEnum):
    """Elements of a trace row."""

    EQUITY = 0
    POSITION = 1
    REWARD = 2
    CURSOR = 3


TRACE_FIELDS = 4


@dataclass(frozen=True)
class Rules:
    """How trades are sized and what they cost."""

    sizing: int
    multiplier: float
    tick_size: float
    commission: float
    slippage: float
    borrow_rate: float


def trade_bar(
    equity: F64,
    held: F64,
    target: F64,
    close: F64,
    price: F64,
    next_close: F64,
    rules: Rules,
) -> tuple[F64, F64, NDArray[np.bool_]]:
    """From one close to the next, by way of a trade at `price`; all [E].

    Returns:
        Equity after the bar, equity at the trade before its cost, and who was ruined.
    """
    change = np.abs(target - held)
    borrowed = np.where(target < 0.0, -target, 0.0)
    if rules.sizing == Sizing.EQUITY:
        at_fill = equity * (1.0 + held * (price / close - 1.0))
        charged = at_fill * (1.0 - (rules.commission + rules.slippage) * change)
        marked = charged * (1.0 + target * (next_close / price - 1.0))
        after = marked * (1.0 - rules.borrow_rate * borrowed)
    else:
        side = (rules.slippage * rules.tick_size) * rules.multiplier + rules.commission
        at_fill = equity + (held * rules.multiplier) * (price - close)
        charged = at_fill - side * change
        marked = charged + (target * rules.multiplier) * (next_close - price)
        after = marked - ((rules.borrow_rate * borrowed) * rules.multiplier) * next_close
    above = (at_fill > 0.0) & (charged > 0.0) & (marked > 0.0) & (after > 0.0)
    return after, at_fill, ~above | np.isinf(after)


def observe(
    out: NDArray[np.float32],
    features: NDArray[np.float32],
    cursor: I64,
    equity: F64,
    position: F64,
    entry: F64,
    held: I64,
    largest: float,
) -> None:
    """Write the observations `out` [E, Sp] of lanes at the close of bar `cursor`."""
    width = features.shape[1]
    flat = position == 0.0
    out[:, :width] = features[cursor]
    out[:, width] = position / largest if largest > 0.0 else 0.0
    out[:, width + 1] = np.where(flat, 0.0, log64(equity / np.where(flat, 1.0, entry)))
    out[:, width + 2] = held / (held + 10.0)
    out[:, width + 3 :] = 0.0


@kernel(
    per="warp",
    work="lanes",
    block=128,
    features="in f32",
    open="in f64",
    close="in f64",
    positions="in f64",
    action="in i32",
    lane_f64="inout f64",
    lane_i64="inout i64",
    obs="inout f32",
    obs_tm1="out f32",
    obs_t="out f32",
    reward="out f32",
    flags="out u8",
    episode="out i64",
    trace="inout f64",
    lanes="i32",
    bars="i64",
    features_n="i32",
    actions="i32",
    padded="i32",
    first="i64",
    last="i64",
    max_steps="i32",
    random_start="i32",
    sizing="i32",
    fill="i32",
    initial_equity="f64",
    multiplier="f64",
    tick_size="f64",
    commission="f64",
    slippage="f64",
    borrow_rate="f64",
    reward_kind="i32",
    reward_scale="f64",
    floor_reward="f64",
    seed="u64",
    trace_len="i64",
    reset="i32",
)
def env_market(
    features: NDArray[np.float32],
    open: F64,  # noqa: A002 (the bar's open)
    close: F64,
    positions: F64,
    action: NDArray[np.int32],
    lane_f64: F64,
    lane_i64: I64,
    obs: NDArray[np.float32],
    obs_tm1: NDArray[np.float32],
    obs_t: NDArray[np.float32],
    reward: NDArray[np.float32],
    flags: NDArray[np.uint8],
    episode: I64,
    trace: F64,
    *,
    lanes: int,
    bars: int,
    features_n: int,
    actions: int,
    padded: int,
    first: int,
    last: int,
    max_steps: int,
    random_start: int,
    sizing: int,
    fill: int,
    initial_equity: float,
    multiplier: float,
    tick_size: float,
    commission: float,
    slippage: float,
    borrow_rate: float,
    reward_kind: int,
    reward_scale: float,
    floor_reward: float,
    seed: int,
    trace_len: int,
    reset: int,
) -> None:
    """Take one step in every lane, or begin a new episode in each."""
    if bars < 1:
        return
    final_bar = min(last, bars) - 1
    largest = float(np.fmax.reduce(np.abs(positions[:actions]), initial=0.0))
    table = features[: bars * features_n].reshape(bars, features_n)
    money = lane_f64[: lanes * LANE_FIELDS].reshape(lanes, LANE_FIELDS)
    place = lane_i64[: lanes * LANE_FIELDS].reshape(lanes, LANE_FIELDS)
    observed = obs[: lanes * padded].reshape(lanes, padded)  # [E, Sp]
    equity, position = money[:, LaneF64.EQUITY], money[:, LaneF64.POSITION]
    entry, final_equity = money[:, LaneF64.ENTRY_EQUITY], money[:, LaneF64.FINAL_EQUITY]
    cursor, held = place[:, LaneI64.CURSOR], place[:, LaneI64.HELD]
    steps, begun = place[:, LaneI64.STEPS], place[:, LaneI64.EPISODE]
    tracing, traced = place[:, LaneI64.TRACING], place[:, LaneI64.TRACED]
    np.clip(cursor, 0, bars - 1, out=cursor)

    with np.errstate(all="ignore"):
        if reset:
            restart = np.ones(lanes, np.bool_)
            tracing[:], traced[:] = 1, 0
        else:
            a = np.clip(action[:lanes], 0, actions - 1)
            moves = cursor < final_bar
            following = np.minimum(cursor + 1, bars - 1)
            here, there = close[cursor], close[following]
            price = {Fill.NEXT_OPEN: open[following], Fill.NEXT_CLOSE: there}.get(Fill(fill), here)
            target = np.where(moves, positions[a], position)
            rules = Rules(sizing, multiplier, tick_size, commission, slippage, borrow_rate)
            after, at_fill, ruined = trade_bar(equity, position, target, here, price, there, rules)
            ruined &= moves
            value = (
                log64(after / equity)
                if reward_kind == RewardKind.LOG_RATIO
                else (after - equity) * reward_scale
            )
            value = np.where(ruined, floor_reward, np.where(moves, value, 0.0))

            lives = moves & ~ruined
            flat = target == 0.0
            entered = ~flat & ~(position * target > 0.0)
            held_on = np.where(flat, 0, np.where(entered, 1, held + 1))
            entry_on = np.where(flat, 0.0, np.where(entered, at_fill, entry))
            held[:] = np.where(lives, held_on, np.where(ruined, 0, held))
            entry[:] = np.where(lives, entry_on, np.where(ruined, 0.0, entry))
            position[:] = np.where(lives, target, np.where(ruined, 0.0, position))
            equity[:] = np.where(lives, after, np.where(ruined, 0.0, equity))
            cursor += moves
            steps += 1

            truncated = ~ruined & ((cursor >= final_bar) | ((max_steps > 0) & (steps >= max_steps)))
            restart = ruined | truncated
            obs_tm1[: lanes * padded].reshape(lanes, padded)[:] = observed
            arrived = obs_t[: lanes * padded].reshape(lanes, padded)
            observe(arrived, table, cursor, equity, position, entry, held, largest)
            reward[:lanes] = value
            flags[:lanes] = (
                (a != action[:lanes]) * Flag.INVALID.value
                + ruined * Flag.TERMINATED.value
                + truncated * Flag.TRUNCATED.value
            )
            episode[:lanes] = np.arange(lanes) + lanes * (begun - 1)
            rows = np.flatnonzero((tracing != 0) & (steps <= trace_len))
            if len(rows):
                log = trace[: lanes * trace_len * TRACE_FIELDS].reshape(lanes, trace_len, -1)
                log[rows, steps[rows] - 1] = np.stack(
                    [equity[rows], target[rows], value[rows], cursor[rows]], axis=-1
                )
                traced[rows] = steps[rows]
            tracing[restart] = 0
            final_equity[restart] = equity[restart]

        if restart.any():
            offset = reset_draw(seed, begun, final_bar - first) if random_start else 0
            begins = np.clip(np.broadcast_to(first + offset, lanes), 0, bars - 1)
            cursor[restart] = begins[restart]
            equity[restart] = initial_equity
            position[restart] = entry[restart] = 0.0
            held[restart] = steps[restart] = 0
            begun[restart] += 1
        observe(observed, table, cursor, equity, position, entry, held, largest)
