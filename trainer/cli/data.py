"""``onegraph data``: look at market data before anything is trained on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from onegraph.trainer.cli.console import results, table
from onegraph.trainer.cli.errors import reported
from onegraph.trainer.cli.train import ConfigOption, SetOption
from onegraph.trainer.config import Config, load_config, parse_override
from onegraph.trainer.envs.bars import adjustments_of, features_of
from onegraph.trainer.envs.build import build_market, load_bars
from onegraph.trainer.market import Bars, MarketDataError, Windows, compute_features
from onegraph.trainer.market.bars import find_jumps, stamp_text
from onegraph.trainer.market.calendar import Calendar, calendar_of, length_text
from onegraph.trainer.trainer import TrainerError

app = typer.Typer(
    help="Look at market data before anything is trained on it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: Rows of a list that are shown; more are counted.
LISTED = 5
SYMBOLS_LISTED = 20


@app.callback()
def data() -> None:
    """Keep the name of the one command in what is typed: ``data inspect``."""


@app.command()
@reported
def inspect(
    file: Annotated[
        str | None,
        typer.Argument(help="CSV, Parquet or Databento file; sample: the shipped bars."),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    symbol: Annotated[
        str | None, typer.Option("--symbol", help="The symbol, of a file that holds several.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="IANA name of the clock of the file's times.")
    ] = None,
    bar_stamp: Annotated[
        str | None, typer.Option("--bar-stamp", help="end or start: which one the times mark.")
    ] = None,
    bar_seconds: Annotated[
        float | None,
        typer.Option("--bar-seconds", help="Length of a bar, where the times mark its start."),
    ] = None,
    date_order: Annotated[
        str | None,
        typer.Option("--date-order", help="month-first or day-first, of dates with slashes."),
    ] = None,
    adjustments: Annotated[
        Path | None,
        typer.Option("--adjustments", help="CSV of date,ratio: splits and rolls to take out."),
    ] = None,
    no_adjust: Annotated[
        bool, typer.Option("--no-adjust", help="Leave an adjusted close in the file aside.")
    ] = False,
) -> None:
    """Print what is understood of a file: its clock, calendar, gaps, jumps, features and split."""
    given = {
        "data": file,
        "symbol": symbol,
        "timezone": timezone,
        "bar_stamp": bar_stamp,
        "bar_seconds": bar_seconds,
        "date_order": date_order,
        "adjustments": None if adjustments is None else str(adjustments),
        "adjust": False if no_adjust else None,
    }
    values = dict(parse_override(text) for text in overrides or ())
    values |= {f"env.market.{name}": value for name, value in given.items() if value is not None}
    settings = load_config(config, values)
    if settings.env.kind != "market" and file is None:
        raise TrainerError(
            f"{config} trains on env.kind = {settings.env.kind!r}, which has no bars; name a file,"
            " or the config of a market"
        )
    _inspect(settings, results())


def _inspect(config: Config, console: Console) -> None:
    """Print what is known of the bars, also where they do not do to train on; then raise that."""
    windows: Windows | None = None
    refusal: MarketDataError | None = None
    try:
        setup = build_market(config)
        bars, windows = setup.bars, setup.windows
    except MarketDataError as error:
        bars, refusal = load_bars(config), error
    calendar = calendar_of(bars)
    console.print(_facts(config, bars, calendar))
    for line in (*_gaps(calendar), *(f"note: {note}" for note in bars.notes)):
        console.print(line, markup=False)
    if refusal is not None:
        raise refusal
    console.print(_features(config, bars))
    if windows is not None:
        console.print(_split(bars, windows))


def _facts(config: Config, bars: Bars, calendar: Calendar) -> object:
    market, source = config.env.market, bars.source
    rows = table("Bars", "", "understood", left=2)
    facts: list[tuple[str, str]] = []
    if source is not None:
        order = ", newest first" if source.newest_first else ""
        facts.append(("file", f"{source.path} ({source.layout}{order})"))
        facts.append(("symbols in it", _listed(source.symbols) or "it names none"))
    facts += [
        ("symbol", bars.symbol),
        ("bars", f"{len(bars):,}"),
        ("first (UTC)", stamp_text(int(bars.time[0]))),
        ("last (UTC)", stamp_text(int(bars.time[-1]))),
        ("clock", _clock(config, bars)),
        ("bar length", length_text(calendar.step) if calendar.step else "one bar does not tell"),
        ("bars a year (P)", f"{calendar.periods_per_year:.1f}"),
        ("calendar", _calendar(calendar)),
        *(("session (UTC)", session.describe()) for session in calendar.sessions[:LISTED]),
    ]
    if len(calendar.sessions) > LISTED:
        facts.append(("", f"{len(calendar.sessions) - LISTED} other sessions"))
    longest = calendar.longest_gap
    facts += [
        (
            "gaps",
            f"{len(calendar.gaps)}, the longest {length_text(longest.length)}"
            if longest
            else "none",
        ),
        ("bars without volume", f"{bars.zero_volume_bars}"),
        ("jumps", f"{len(find_jumps(bars)[0])}"),
        ("prices", _adjustment(bars, by_table=adjustments_of(market) is not None)),
    ]
    for name, value in facts:
        rows.add_row(name, escape(value))
    return rows


def _clock(config: Config, bars: Bars) -> str:
    market, source = config.env.market, bars.source
    if source is not None and source.dates:
        return "dates, each midnight UTC whatever the time zone"
    if source is not None and source.layout.startswith("Databento"):
        return "UTC, by the file"
    stamp = "ends" if market.bar_stamp == "end" else "starts"
    return f"{market.timezone}, the file's times are the {stamp} of its bars"


def _calendar(calendar: Calendar) -> str:
    days = f", {' '.join(calendar.weekdays)}" if calendar.weekdays else ""
    return f"{calendar.kind}{days}"


def _adjustment(bars: Bars, *, by_table: bool) -> str:
    if by_table:
        return "adjusted by the table of splits and rolls"
    if bars.adjusted:
        return "adjusted by the file's adjusted close"
    if bars.source is not None and bars.source.adjusted_close:
        return "as traded; the file's adjusted close is left aside"
    return "as traded; the file has no adjusted close"


def _gaps(calendar: Calendar) -> list[str]:
    lines = [
        f"gap: {length_text(gap.length)} from {stamp_text(gap.before)} to {stamp_text(gap.after)}"
        for gap in calendar.gaps[:LISTED]
    ]
    more = len(calendar.gaps) - LISTED
    return [*lines, f"{more} more gaps"] if more > 0 else lines


def _features(config: Config, bars: Bars) -> object:
    features = compute_features(bars, features_of(config.env.market))
    rows = table("Features of each bar", "feature", "mean", "std", "least", "most")
    valid = features.values[features.first_valid :]
    for i, name in enumerate(features.names):
        column = valid[:, i]
        figures = (column.mean(), column.std(), column.min(), column.max())
        rows.add_row(name, *(f"{figure:.4g}" for figure in figures))
    first = stamp_text(int(bars.time[features.first_valid]))
    rows.caption = f"the first bar with all of them is {first} (bar {features.first_valid})"
    return rows


def _split(bars: Bars, windows: Windows) -> object:
    rows = table("Split", "window", "first (UTC)", "last (UTC)", "bars", left=3)
    for name in ("train", "validation", "test"):
        window: slice = getattr(windows, name)
        first, last = (stamp_text(int(bars.time[i])) for i in (window.start, window.stop - 1))
        rows.add_row(name, first, last, f"{window.stop - window.start:,}")
    return rows


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SYMBOLS_LISTED} more" if len(names) > SYMBOLS_LISTED else ""
    return ", ".join(names[:SYMBOLS_LISTED]) + more
