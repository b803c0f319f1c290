"""The one typed config of a run: every field with its description, its bounds and its default.

"Learn step" is one run of the `learn` program; "vector step" one step of all E lanes; "env step"
one step of one lane; k counts learn steps from 0.
"""

import datetime as dt
import math
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Width = Annotated[int, Field(ge=1, le=65_536, strict=True)]
Position = Annotated[float, Field(ge=-1e6, le=1e6, strict=True)]
# TOML has lists and no tuples: the outer type converts, its items do not.
Widths = Annotated[tuple[Width, ...], Field(strict=False)]
Positions = Annotated[tuple[Position, ...], Field(strict=False)]
Horizons = Annotated[
    tuple[Annotated[int, Field(ge=1, le=100_000, strict=True)], ...], Field(strict=False)
]
Spans = Annotated[
    tuple[Annotated[int, Field(ge=2, le=100_000, strict=True)], ...], Field(strict=False)
]
Months = Annotated[int, Field(ge=1, le=1200)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Ordinal = Annotated[int, Field(ge=0, le=1023, strict=True)]

#: Seeds of a walk-forward; more than this is a slip.
MOST_SEEDS = 1000


class MismatchError(ValueError):
    """Values that do not fit one another: the field at fault, its value, and what to do."""

    def __init__(self, section: "Section", field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.location = field.split(".")
        self.problem = problem
        self.value: object = section
        for name in self.location:
            self.value = getattr(self.value, name)


def _has_toml_form(value: JsonValue) -> bool:
    """Whether TOML and JSON, in which a config is written, both have `value`."""
    match value:
        case dict():
            return all(map(_has_toml_form, value.values()))
        case list():
            return all(map(_has_toml_form, value))
        case float():
            return math.isfinite(value)
    return value is not None


class Section(BaseModel):
    """What every section has in common: frozen, no unknown fields, no silent conversions."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True
    )


class Schedule(Section):
    """A value that depends on the learn step k, computed in float64 and rounded once."""

    kind: Literal["constant", "linear", "cosine"] = Field(
        "linear",
        description="constant: always start; linear or cosine: from start at k = 0 to end at "
        "k = steps, then end",
    )
    steps: int = Field(
        10_000, ge=1, lt=2**63, description="learn steps over which the value goes to end"
    )


class LearningRateSchedule(Schedule):
    """The learning rate of Adam."""

    kind: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="constant: always start; linear or cosine: from start at k = 0 to end at "
        "k = steps, then end",
    )
    start: float = Field(3e-4, gt=0.0, le=1.0, description="learning rate at k = 0")
    end: float = Field(3e-4, ge=0.0, le=1.0, description="learning rate from k = steps on")
    warm_up_steps: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="learn steps over which the learning rate rises linearly to the schedule's",
    )


class TauSchedule(Schedule):
    """How far a soft update moves the target network toward the online one."""

    kind: Literal["constant", "linear", "cosine"] = Field(
        "cosine",
        description="constant: always start; linear or cosine: from start at k = 0 to end at "
        "k = steps, then end",
    )
    start: Fraction = Field(0.01, description="tau at k = 0; 1 copies the online network")
    end: Fraction = Field(0.005, description="tau from k = steps on")


class EpsilonSchedule(Schedule):
    """The probability with which collection takes a random action."""

    steps: int = Field(
        100_000,
        ge=1,
        lt=2**63,
        description="env steps, over all lanes, in which the value goes to end",
    )

    start: Fraction = Field(1.0, description="epsilon at the first env step")
    end: Fraction = Field(0.05, description="epsilon from env step `steps` on")


def _adjustments(value: object) -> str | tuple[tuple[dt.date, float], ...]:
    """The name of a file as it is; a list of [date, ratio] with its dates as dates."""
    if isinstance(value, str):
        return value
    kind = "adjustments"
    if not isinstance(value, list | tuple):
        raise PydanticCustomError(kind, "use a file's name, or a list such as [[2005-02-28, 0.5]]")
    rows = []
    for row in value:
        match row:
            case [dt.datetime(), _]:
                raise PydanticCustomError(kind, "use a date without a time of day, or a file")
            case [dt.date() as day, int() | float() as ratio]:
                pass
            case [str() as text, int() | float() as ratio]:
                try:
                    day = dt.date.fromisoformat(text)
                except ValueError:
                    problem = "has a date that is none; write dates as in 2005-02-28"
                    raise PydanticCustomError(kind, problem) from None
            case _:
                problem = "has a row that is no date and ratio, such as [2005-02-28, 0.5]"
                raise PydanticCustomError(kind, problem)
        if isinstance(ratio, bool) or not 1e-9 <= ratio <= 1e9:
            raise PydanticCustomError(kind, "has a ratio that is no number above 0, up to 1e9")
        rows.append((day, float(ratio)))
    if len({day for day, _ in rows}) != len(rows):
        raise PydanticCustomError(kind, "has a date twice; give one ratio for each date")
    return tuple(rows)


#: The name of a file, or (first day after a split or roll, ratio of the prices before it).
Adjustments = Annotated[str | tuple[tuple[dt.date, float], ...], BeforeValidator(_adjustments)]


class MarketFeatures(Section):
    """What the network sees of the bars, each from the bars up to its own.

    The position, its unrealised return and the bars it was held are always there.
    """

    returns: Horizons = Field(
        (1, 2, 5, 10, 20), max_length=64, description="bars over which log returns are taken"
    )
    volatility: Spans = Field(
        (10, 20), max_length=64, description="bars over which the volatility of returns is taken"
    )
    volume_mean: int = Field(
        20,
        ge=0,
        le=100_000,
        description="bars of the mean that the log volume is set against; 0: no volume",
    )
    bar_shape: bool = Field(
        default=True, description="the bar's range over its close, and the close's place in it"
    )
    clock: bool = Field(
        default=True, description="time of day and day of week (UTC), for intraday bars"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for field in ("returns", "volatility"):
            values = getattr(self, field)
            if len(set(values)) != len(values):
                raise MismatchError(self, field, "has a number of bars twice; list each once")
        if not (self.returns or self.volatility or self.volume_mean or self.bar_shape):
            # The clock alone would do for intraday bars, but says nothing of the market.
            problem = "is empty, as is every other feature of the bars; ask for one at least"
            raise MismatchError(self, "returns", problem)
        return self


class MarketConfig(Section):
    """The bars and the trading rules of the market environment."""

    data: str = Field(
        "sample",
        min_length=1,
        description="a CSV, Parquet or Databento file of OHLCV bars; 'sample' for the shipped "
        "daily bars, 'sample:IBM' for another of its symbols",
    )
    symbol: str = Field(
        "", description="the symbol to read from a file that holds several; empty if it holds one"
    )
    adjust: bool = Field(
        default=True, description="scale prices by adjusted close / close where the data has both"
    )
    adjustments: Adjustments = Field(
        "",
        description="splits and rolls to take out of the prices: a list of [first date after it, "
        "ratio], such as [[2005-02-28, 0.5]], or a CSV file of date,ratio; prices before the date "
        "are multiplied by the ratio; empty: none",
    )
    timezone: str = Field(
        "UTC",
        min_length=1,
        description="IANA name of the clock that stamps without an offset were read from",
    )
    bar_stamp: Literal["end", "start"] = Field(
        "end", description="which end of its bar a time of day in the file marks"
    )
    bar_seconds: float = Field(
        0.0,
        ge=0.0,
        le=31_622_400.0,
        description="length of a bar, read when bar_stamp is start; 0: the smallest step between "
        "bars",
    )
    date_order: Literal["month-first", "day-first"] = Field(
        "month-first", description="which number comes first in dates with slashes: 2/28/2005"
    )
    sizing: Literal["equity", "contracts"] = Field(
        "equity",
        description="what a position of 1 is: the whole equity, or one contract",
    )
    positions: Positions = Field(
        (-1.0, 0.0, 1.0),
        min_length=2,
        description="the target position of each action, in units of sizing; negative is short",
    )
    initial_equity: float = Field(
        100_000.0, gt=0.0, le=1e15, description="equity at the start of an episode, in money"
    )
    multiplier: float = Field(
        1.0, gt=0.0, le=1e9, description="money per point of price and contract; equity sizing: 1"
    )
    tick_size: float = Field(
        0.01, gt=0.0, le=1e6, description="the smallest price step, in points; slippage's unit"
    )
    commission: float = Field(
        0.0,
        ge=0.0,
        le=1e6,
        description="per side: a fraction of the traded value (equity sizing), or money per "
        "contract (contracts sizing)",
    )
    slippage: float = Field(
        0.0,
        ge=0.0,
        le=1e6,
        description="per side, against the trade: a fraction of the fill price (equity sizing), "
        "or ticks (contracts sizing)",
    )
    borrow_rate: float = Field(
        0.0, ge=0.0, lt=1.0, description="cost of a short position, a fraction of its value a bar"
    )
    fill: Literal["next_open", "next_close", "close"] = Field(
        "next_open",
        description="the price at which the position decided at a bar's close is taken: the next "
        "bar's open or close, or that close itself (optimistic)",
    )
    reward: Literal["log_return", "scaled_pnl"] = Field(
        "log_return",
        description="log of the equity ratio, or the change of equity over initial_equity times "
        "reward_scale",
    )
    reward_scale: float = Field(
        1.0, gt=0.0, le=1e9, description="factor on the rewards of reward = 'scaled_pnl'"
    )
    floor_reward: float = Field(
        -10.0,
        ge=-1e9,
        le=0.0,
        description="the reward of the step on which equity falls to 0",
    )
    train: float = Field(
        0.6, gt=0.0, lt=1.0, description="fraction of the bars, from the first on, to train on"
    )
    validation: float = Field(
        0.2, gt=0.0, lt=1.0, description="fraction of the bars that selects the checkpoint"
    )
    test: float = Field(0.2, gt=0.0, lt=1.0, description="fraction of the bars that is reported")
    train_start: dt.date | None = Field(
        None, description="first day (UTC) of training, read with train_end; absent: the first bar"
    )
    train_end: dt.date | None = Field(
        None,
        description="first day (UTC) after training; with validation_end it replaces the fractions",
    )
    validation_end: dt.date | None = Field(None, description="first day (UTC) after validation")
    test_end: dt.date | None = Field(
        None, description="first day (UTC) after the test, read with train_end; absent: all bars"
    )
    purge_bars: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="bars dropped at the end of a window, whose returns reach into the next",
    )
    embargo_bars: int = Field(
        0, ge=0, le=1_000_000, description="bars dropped at the start of the window that follows"
    )

    features: MarketFeatures = Field(MarketFeatures(), description="features of the bars")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        name, colon, symbol = self.data.partition(":")
        if name == "sample" and colon and not symbol:
            raise MismatchError(
                self, "data", "names no symbol after the colon; use 'sample' or 'sample:IBM'"
            )
        if name == "sample" and symbol and self.symbol not in ("", symbol):
            problem = f"contradicts symbol = {self.symbol!r}; name the symbol once"
            raise MismatchError(self, "data", problem)
        if len(set(self.positions)) != len(self.positions):
            raise MismatchError(self, "positions", "has a position twice; list each once")
        if self.sizing == "contracts" and any(p != int(p) for p in self.positions):
            problem = "has part of a contract; use whole numbers, or sizing = 'equity'"
            raise MismatchError(self, "positions", problem)
        if self.sizing == "equity":
            for field in ("commission", "slippage"):
                if getattr(self, field) >= 1.0:
                    problem = (
                        "is not a fraction below 1, which it is with sizing = 'equity'; "
                        "5 basis points are 0.0005"
                    )
                    raise MismatchError(self, field, problem)
            if self.multiplier != 1.0:
                problem = "has no meaning with sizing = 'equity'; leave it at 1"
                raise MismatchError(self, "multiplier", problem)
        self._check_windows()
        return self

    def _check_windows(self) -> None:
        if (self.train_end is None) != (self.validation_end is None):
            absent = "train_end" if self.train_end is None else "validation_end"
            raise MismatchError(
                self, absent, "is absent; give both train_end and validation_end, or neither"
            )
        if self.train_end is not None and self.validation_end is not None:
            if self.train_start is not None and self.train_start >= self.train_end:
                problem = f"leaves no training; use a day before train_end, {self.train_end}"
                raise MismatchError(self, "train_start", problem)
            if self.validation_end <= self.train_end:
                problem = f"leaves no validation; use a day after train_end, {self.train_end}"
                raise MismatchError(self, "validation_end", problem)
            if self.test_end is not None and self.test_end <= self.validation_end:
                problem = f"leaves no test; use a day after validation_end, {self.validation_end}"
                raise MismatchError(self, "test_end", problem)
            return
        for field in ("train_start", "test_end"):
            if getattr(self, field) is not None:
                problem = "has no meaning without dates; give train_end and validation_end too"
                raise MismatchError(self, field, problem)
        total = self.train + self.validation + self.test
        if abs(total - 1.0) > 1e-9:
            problem = (
                f"makes train + validation + test = {total:.10g}, with validation = "
                f"{self.validation} and test = {self.test}; the three must add up to 1"
            )
            raise MismatchError(self, "train", problem)


class EnvConfig(Section):
    """The environment that the `collect` program steps on the device, or takes in from the host."""

    kind: Literal[
        "market",
        "chain",
        "truncation-probe",
        "cliff",
        "bit-flip",
        "coin",
        "gymnasium",
        "recorded",
    ] = Field(
        "market",
        description="market: trade bars; chain: walk right to +1; truncation-probe: one state, "
        "reward 1; cliff: CliffWalking-v1; bit-flip: turn env.bits bits into a goal, one a step; "
        "coin: reward 0 or 1 by chance; gymnasium: env.id of gymnasium's registry, on the host; "
        "recorded: none, only the rows of offline.transitions",
    )
    id: str = Field(
        "",
        description="environment of gymnasium's registry, 'CartPole-v1' or 'module:Name-v0'; read "
        "when kind is gymnasium",
    )
    kwargs: dict[str, JsonValue] = Field(
        {}, description="what the environment is made with; read when kind is gymnasium"
    )
    vectorization: Literal["sync", "async", "vector_entry_point"] = Field(
        "sync",
        description="how gymnasium steps the lanes: in turn, in a process each, or by the id's own "
        "vector environment",
    )
    validation_episodes: int = Field(
        10,
        ge=0,
        le=100_000,
        description="greedy episodes whose mean return is an epoch's score; 0: no score; read when "
        "kind is gymnasium",
    )
    evaluation_episodes: int = Field(
        100,
        ge=1,
        le=100_000,
        description="greedy episodes of an evaluation after training; read when kind is gymnasium",
    )
    lanes: int = Field(64, ge=1, le=1_048_576, description="E, the environments stepped together")
    max_episode_steps: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="truncate an episode after this many steps; 0: never, "
        "and after env.bits steps when kind is bit-flip, as env.id is registered when kind is "
        "gymnasium; the coin's episodes are one step long",
    )
    bits: int = Field(
        15, ge=1, le=64, description="bits of the state and of the goal; read when kind is bit-flip"
    )
    market: MarketConfig = Field(MarketConfig(), description="read when kind is market")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.kind == "gymnasium" and not self.id:
            problem = "names no environment; set it, as in env.id = 'CartPole-v1' (--env)"
            raise MismatchError(self, "id", problem)
        if self.kind != "gymnasium":
            for field in ("id", "kwargs"):
                if getattr(self, field):
                    problem = f"is read when env.kind is gymnasium, and it is {self.kind!r}"
                    raise MismatchError(self, field, f"{problem}; set that, or leave it out")
        if not _has_toml_form(self.kwargs):
            problem = "holds a null, a NaN or an infinity, which a config can't; leave it out"
            raise MismatchError(self, "kwargs", problem)
        return self

    def __hash__(self) -> int:
        """Of its text: `kwargs` has no hash of its own."""
        return hash(self.model_dump_json())


class IqnConfig(Section):
    """The quantile head; read when network.head is iqn."""

    quantiles: int = Field(32, ge=1, le=64, description="Q, fractions drawn for the online network")
    target_quantiles: int = Field(
        32, ge=1, le=64, description="Q', fractions drawn for the target network"
    )
    kappa: float = Field(
        1.0, gt=0.0, le=1e9, description="error from which the quantile Huber loss is linear"
    )
    readiness: bool = Field(
        default=True,
        description="value actions with a plain head too, until the quantile loss has fallen",
    )
    ready_high: float = Field(
        1.0, gt=0.0, le=1e9, description="mean quantile loss from which the plain head decides"
    )
    ready_low: float = Field(
        0.1, ge=0.0, le=1e9, description="mean quantile loss below which the quantile head decides"
    )
    ready_decay: float = Field(
        0.99, ge=0.0, lt=1.0, description="decay of the mean of the quantile loss"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.ready_low >= self.ready_high:
            problem = f"is not below ready_high = {self.ready_high}; the blend goes from one to it"
            raise MismatchError(self, "ready_low", problem)
        return self


class C51Config(Section):
    """The categorical head; read when network.head is c51."""

    atoms: int = Field(51, ge=2, le=256, description="values of the return's distribution")
    v_min: float = Field(-10.0, ge=-1e9, le=1e9, description="the lowest of them")
    v_max: float = Field(10.0, ge=-1e9, le=1e9, description="the highest of them")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.v_min >= self.v_max:
            raise MismatchError(self, "v_min", f"is not below v_max = {self.v_max}; lower it")
        return self


class NetworkConfig(Section):
    """The Q network: gate, attention, hidden layers, residual blocks, head."""

    gate: bool = Field(
        default=False, description="multiply each feature by a learned number from 0 to 1"
    )
    gate_l1: float = Field(
        1e-4, ge=0.0, le=1e3, description="penalty on the sum of the gate's numbers"
    )
    attention_groups: int = Field(
        0,
        ge=0,
        le=64,
        description="G, groups of features that attend to one another; 0: no attention",
    )
    attention_heads: int = Field(1, ge=1, le=64, description="heads of the attention")
    hidden: Widths = Field(
        (256, 256), min_length=1, max_length=16, description="width of each hidden layer"
    )
    residual_blocks: int = Field(
        0, ge=0, le=64, description="R, residual blocks behind the hidden layers"
    )
    drop_path: Fraction = Field(
        0.0, description="probability that the last residual block is left out of a learn step"
    )
    head: Literal["dqn", "iqn", "c51"] = Field(
        "dqn",
        description="dqn: action values; iqn: quantiles of the return; c51: a distribution over "
        "fixed returns",
    )
    dueling: bool = Field(
        default=True, description="split the head into a state value and advantages"
    )
    double: bool = Field(
        default=True,
        description="choose the next action with the online network, value it with the target's",
    )
    noisy: bool = Field(
        default=False, description="explore by noise on the head's weights, not by epsilon"
    )
    noisy_sigma: float = Field(
        0.5, gt=0.0, le=10.0, description="initial size of that noise, over the root of fan-in"
    )
    spectral_cap: float = Field(
        0.0,
        ge=0.0,
        le=1e9,
        description="largest singular value that the hidden layers and blocks are read with; "
        "0: as they are",
    )
    precision: Literal["float32", "tf32", "tf32x3"] = Field(
        "float32",
        description="of larger matrix products on a GPU's tensor cores. tf32: factors with 10 bits "
        "behind the point; tf32x3: three such products for each, with float32's accuracy; the host "
        "and small products stay at float32",
    )
    iqn: IqnConfig = Field(IqnConfig(), description="quantile head")
    c51: C51Config = Field(C51Config(), description="categorical head")


class AuxConfig(Section):
    """Auxiliary networks beside the Q network."""

    iql: bool = Field(
        default=False, description="learn a high and a low expectile of the state's value"
    )
    iql_hidden: Width = Field(64, description="hidden width of the two value networks")
    expectile_high: float = Field(0.7, gt=0.0, lt=1.0, description="the high expectile")
    expectile_low: float = Field(0.3, gt=0.0, lt=1.0, description="the low expectile")
    modulate: bool = Field(
        default=False,
        description="scale the TD errors that become priorities by the advantage that the value "
        "networks see",
    )
    modulate_k: float = Field(1.0, ge=0.0, le=1e3, description="strength of that scaling")
    modulate_low: float = Field(0.5, ge=0.0, le=1e3, description="smallest factor")
    modulate_high: float = Field(2.0, ge=0.0, le=1e3, description="largest factor")
    modulate_eps: float = Field(
        1e-3, gt=0.0, le=1e3, description="added to the distance of the two expectiles"
    )
    denoise: bool = Field(
        default=False, description="learn to recover a state from a noised one, through the trunk"
    )
    denoise_hidden: Width = Field(64, description="hidden width of the decoder")
    denoise_sigma: float = Field(0.1, ge=0.0, le=1e3, description="standard deviation of the noise")
    denoise_weight: float = Field(0.1, ge=0.0, le=1e3, description="weight of the decoder's loss")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.modulate and not self.iql:
            problem = "needs the value networks; set aux.iql = true, or leave it out"
            raise MismatchError(self, "modulate", problem)
        if self.modulate_low > self.modulate_high:
            problem = f"is above modulate_high = {self.modulate_high}; lower it"
            raise MismatchError(self, "modulate_low", problem)
        if self.expectile_low > self.expectile_high:
            problem = f"is above expectile_high = {self.expectile_high}; lower it"
            raise MismatchError(self, "expectile_low", problem)
        return self


class BudgetConfig(Section):
    """Shares of learn.max_grad_norm that the parts of the gradient may have; they add up to 1."""

    on: bool = Field(default=False, description="hold each part of the gradient to its share")
    q: Fraction = Field(0.7, description="of the Q network's trunk and heads")
    iql_high: Fraction = Field(0.05, description="of the high value network")
    iql_low: Fraction = Field(0.05, description="of the low value network")
    denoise: Fraction = Field(0.1, description="of the denoising loss, in the trunk too")
    attention: Fraction = Field(0.05, description="of the attention")
    selectivity: Fraction = Field(0.05, description="of the gate")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        total = (
            self.q + self.iql_high + self.iql_low + self.denoise + self.attention + self.selectivity
        )
        if abs(total - 1.0) > 1e-9:
            problem = f"makes the shares add up to {total:.10g}; they must add up to 1"
            raise MismatchError(self, "q", problem)
        return self


class ReplayConfig(Section):
    """The prioritized replay."""

    capacity: int = Field(
        1_048_576, ge=1, lt=2**31, description="N, the rows it holds: a multiple of env.lanes"
    )
    n_step: int = Field(3, ge=1, le=1024, description="steps summed into a return")
    alpha: Fraction = Field(
        0.6, description="exponent of the priority (|TD error| + eps)^alpha; 0 draws uniformly"
    )
    beta_start: Fraction = Field(0.4, description="importance-weight exponent at k = 0")
    beta_end: Fraction = Field(1.0, description="importance-weight exponent from beta_steps on")
    beta_steps: int = Field(
        100_000,
        ge=1,
        lt=2**63,
        description="learn steps over which beta goes to beta_end, linearly",
    )
    eps: float = Field(1e-6, ge=0.0, le=1.0, description="added to |TD error| before alpha")
    stratified: bool = Field(
        default=True, description="draw one row from each of B equal parts of the priority mass"
    )
    memory_cap_mb: int = Field(
        0,
        ge=0,
        le=1_000_000_000,
        description="most device memory, in MiB; the capacity is halved to fit it; 0: no cap",
    )


class OfflineConfig(Section):
    """Learning from a fixed set of transitions, without a step of the environment."""

    transitions: str = Field(
        "",
        description="a .npz or .parquet file of transitions to learn from (docs/offline.md); the "
        "replay then holds them and nothing else; empty: collect",
    )
    actions: int = Field(
        0,
        ge=0,
        le=65_536,
        description="actions that there are; 0: one more than the file's largest",
    )
    learn_steps: int = Field(100_000, ge=1, lt=2**63, description="learn steps of the whole run")
    held_out: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="share of the episodes that are not learned from, for the TD error on them",
    )


class HindsightConfig(Section):
    """Hindsight experience replay, for environments whose observations hold a goal."""

    strategy: Literal["none", "future", "final", "random"] = Field(
        "none",
        description="goals that sampled rows are given: future: achieved later in the episode; "
        "final: at its end; random: in another row of the batch; none: they keep their own",
    )
    k: int = Field(
        4,
        ge=1,
        le=1_000_000,
        description="rows that are given a goal for each that keeps its own: a chance of k / (k+1)",
    )


class LearnConfig(Section):
    """Loss, optimiser, target network and exploration."""

    batch_size: int = Field(64, ge=1, le=1_048_576, description="B, the rows drawn a learn step")
    gamma: Fraction = Field(0.99, description="discount of one env step")
    loss: Literal["huber", "mse"] = Field("huber", description="loss of the TD error")
    huber_delta: float = Field(
        1.0, gt=0.0, le=1e9, description="|TD error| from which Huber's loss is linear"
    )
    adam_beta1: float = Field(0.9, ge=0.0, lt=1.0, description="decay of Adam's first moment")
    adam_beta2: float = Field(0.999, ge=0.0, lt=1.0, description="decay of Adam's second moment")
    adam_eps: float = Field(
        1e-8, gt=0.0, le=1.0, description="added to the root of Adam's second moment"
    )
    weight_decay: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="decay of the parameters, times the learning rate (AdamW)",
    )
    max_grad_norm: float = Field(
        10.0, ge=0.0, le=1e9, description="clip the gradient's global 2-norm to this; 0: do not"
    )
    budget: BudgetConfig = Field(BudgetConfig(), description="gradient budget")
    vaccine: bool = Field(
        default=False,
        description="draw a second batch, and take out of the gradient what works against its own",
    )
    target: Literal["soft", "hard"] = Field(
        "soft",
        description="move the target network by tau each learn step, or copy it every target_every",
    )
    target_every: int = Field(
        1000, ge=1, lt=2**63, description="learn steps between two copies; read when target is hard"
    )
    lr: LearningRateSchedule = Field(LearningRateSchedule(), description="learning rate")
    tau: TauSchedule = Field(TauSchedule(), description="target update; read when target is soft")
    epsilon: EpsilonSchedule = Field(EpsilonSchedule(), description="exploration")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.budget.on and not self.max_grad_norm:
            problem = (
                "is no norm to have shares of, which budget.on = true asks for; raise it, or set"
                " budget.on = false"
            )
            raise MismatchError(self, "max_grad_norm", problem)
        return self


class LoopConfig(Section):
    """How collecting and learning alternate, and what happens once an epoch."""

    total_env_steps: int = Field(
        1_000_000, ge=1, lt=2**63, description="env steps of the whole run, over all lanes"
    )
    start_steps: int = Field(
        10_000, ge=1, lt=2**63, description="rows in the replay before the first learn step"
    )
    learn_every: int = Field(
        1, ge=1, lt=2**31, description="vector steps collected before each round of learning"
    )
    learns_per_collect: int = Field(
        1, ge=1, lt=2**31, description="learn steps in each round of learning"
    )
    epoch_steps: int = Field(1000, ge=1, lt=2**31, description="learn steps an epoch")
    timed_steps: int = Field(
        16,
        ge=0,
        le=65_536,
        description="K, the learn steps of an epoch whose phases are timed; 0: none",
    )
    nonfinite_limit: int = Field(
        100,
        ge=0,
        lt=2**31,
        description="stop when so many learn steps in a row were skipped for a gradient that was "
        "NaN or infinite; 0: never",
    )
    checkpoint_every: int = Field(
        1, ge=0, lt=2**31, description="epochs between two checkpoints; 0: only at the end"
    )
    time_limit_s: float = Field(
        0.0,
        ge=0.0,
        le=1e9,
        description="seconds after which a run saves its state and ends, to be resumed; 0: never",
    )
    tensorboard: bool = Field(
        default=False, description="write event files for TensorBoard into the run's folder"
    )
    early_stop_epochs: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="stop after this many epochs without a better validation score; 0: never",
    )
    early_stop_min_delta: float = Field(
        0.0, ge=0.0, le=1e9, description="how much better a validation score must be to count"
    )


def _seeds_of(value: object) -> object:
    """A number n stands for the seeds 0 to n - 1."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SEEDS:
        return tuple(range(value))
    return value


class WalkforwardConfig(Section):
    """Windows that walk forward by months, each trained with several seeds.

    `onegraph walkforward` reads it, with env.market's purge_bars and embargo_bars; a single run
    does not.
    """

    train_months: Months = Field(36, description="calendar months (UTC) to train on")
    val_months: Months = Field(12, description="months after those that select the checkpoint")
    test_months: Months = Field(12, description="months after those that are reported")
    step_months: Months = Field(
        12,
        description="months from one window to the next; test_months has the tests follow one "
        "another",
    )
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_seeds_of), Field(strict=False)] = Field(
        (0, 1, 2),
        min_length=1,
        max_length=MOST_SEEDS,
        description="each window is trained with each of these; a number n stands for 0 to n - 1",
    )
    workers: int = Field(
        1, ge=1, le=1024, description="runs at a time, each in its own process; 1: one by one"
    )
    gpus: Annotated[tuple[Ordinal, ...], Field(strict=False)] = Field(
        (),
        max_length=1024,
        description="CUDA devices that the workers are spread over, each by its number; empty: "
        "the one that a run takes by itself",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for field in ("seeds", "gpus"):
            values = getattr(self, field)
            if len(set(values)) != len(values):
                raise MismatchError(self, field, "has a number twice; list each once")
        if len(self.gpus) > self.workers:
            problem = (
                f"is {len(self.gpus)} devices for workers = {self.workers}, which leaves some"
                " idle; raise workers, or name fewer"
            )
            raise MismatchError(self, "gpus", problem)
        return self


class Config(Section):
    """A whole run."""

    seed: int = Field(
        0, ge=0, lt=2**63, description="key of every random stream; one seed, one trajectory"
    )
    stages: str = Field(
        "all",
        min_length=1,
        description="the stages that are on: all, none, a number n for 0 to n, or a list of names "
        "or numbers; all,-phase-events leaves one out",
    )
    fusion: str = Field(
        "auto",
        min_length=1,
        description="how stage 7 does the learning step's phases together: auto: as was measured "
        "to be fastest; none: the phases as they are; or a name that onegraph stages fusions lists",
    )
    device: Literal["auto", "cuda", "host"] = Field(
        "auto", description="auto: CUDA where there is a GPU, else the host"
    )
    run_dir: str = Field(
        "runs/latest", min_length=1, description="folder for checkpoints, metrics and the config"
    )
    preset: Literal["dqn", "full"] = Field(
        "dqn",
        description="what the other fields start from; dqn: MLP, dueling, double, n-step; full: "
        "every part of the learner",
    )
    env: EnvConfig = Field(EnvConfig(), description="environment")
    network: NetworkConfig = Field(NetworkConfig(), description="Q network")
    aux: AuxConfig = Field(AuxConfig(), description="auxiliary networks")
    replay: ReplayConfig = Field(ReplayConfig(), description="replay")
    hindsight: HindsightConfig = Field(HindsightConfig(), description="hindsight replay")
    offline: OfflineConfig = Field(OfflineConfig(), description="recorded transitions")
    learn: LearnConfig = Field(LearnConfig(), description="learner")
    loop: LoopConfig = Field(LoopConfig(), description="loop")
    walkforward: WalkforwardConfig = Field(
        WalkforwardConfig(), description="read by onegraph walkforward"
    )

    @field_validator("stages", mode="before")
    @classmethod
    def _number_of_stages(cls, value: object) -> object:
        """A lone number means the same whether or not it stands in quotes."""
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.loop.timed_steps > self.loop.epoch_steps:
            problem = f"is more than loop.epoch_steps = {self.loop.epoch_steps}; lower it"
            raise MismatchError(self, "loop.timed_steps", problem)
        if self.replay.beta_end < self.replay.beta_start:
            problem = f"is below replay.beta_start = {self.replay.beta_start}; beta only rises"
            raise MismatchError(self, "replay.beta_end", problem)
        if self.offline.transitions:
            return self  # lanes, capacity and start are then those of the file
        if self.env.kind == "recorded":
            problem = "needs a file of transitions; set offline.transitions (--transitions FILE)"
            raise MismatchError(self, "env.kind", problem)
        self._check_collecting()
        return self

    def _check_collecting(self) -> None:
        lanes, capacity = self.env.lanes, self.replay.capacity
        batch, start = self.learn.batch_size, self.loop.start_steps
        if capacity < lanes:
            problem = f"is less than one row for each of env.lanes = {lanes}; raise it"
            raise MismatchError(self, "replay.capacity", problem)
        if capacity % lanes:
            below = capacity // lanes * lanes
            problem = f"is no multiple of env.lanes = {lanes}; use {below} or {below + lanes}"
            raise MismatchError(self, "replay.capacity", problem)
        if capacity // lanes < self.replay.n_step:
            problem = (
                f"is longer than a lane's {capacity // lanes} rows (replay.capacity / env.lanes); "
                "shorten it or raise replay.capacity"
            )
            raise MismatchError(self, "replay.n_step", problem)
        if batch > capacity:
            problem = f"is more than replay.capacity = {capacity}; lower it or raise the capacity"
            raise MismatchError(self, "learn.batch_size", problem)
        if start > capacity:
            problem = (
                f"is more than replay.capacity = {capacity} can hold, so learning would never "
                "start; lower it or raise the capacity"
            )
            raise MismatchError(self, "loop.start_steps", problem)
        if start < batch:
            problem = f"is less than learn.batch_size = {batch}; raise it to at least that"
            raise MismatchError(self, "loop.start_steps", problem)
        if start > self.loop.total_env_steps:
            problem = (
                f"is more than loop.total_env_steps = {self.loop.total_env_steps}, so learning "
                "would never start; lower it or run longer"
            )
            raise MismatchError(self, "loop.start_steps", problem)
        if self.walkforward.gpus and self.device == "host":
            problem = "names GPUs, and device = 'host' uses none; leave one of the two out"
            raise MismatchError(self, "walkforward.gpus", problem)
