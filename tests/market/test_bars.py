"""What `Bars` refuses, counts and notes; the sample; adjustment by a table."""

import gzip
import hashlib
from importlib.resources import files

import numpy as np
import pytest

from onegraph.trainer.market import (
    SAMPLE_SYMBOLS,
    Bars,
    MarketDataError,
    adjust_by_table,
    load_sample,
    read_adjustments,
)
from onegraph.trainer.market.bars import Source, find_gaps

DAY = 86_400_000_000_000
HOUR = DAY // 24


def make(**changes):
    """Three good bars, with some columns changed."""
    columns = {
        "time": np.arange(3, dtype=np.int64) * DAY,
        "open": [10.0, 11.0, 12.0],
        "high": [12.0, 13.0, 14.0],
        "low": [9.0, 10.0, 11.0],
        "close": [11.0, 12.0, 13.0],
        "volume": [1.0, 2.0, 3.0],
        **changes,
    }
    return Bars("X", **columns)


def at(*days):
    return np.array([round(day * DAY) for day in days], dtype=np.int64)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"time": at(0, 1, 1)}, ["X, bar 2", "1970-01-02 repeats", "X, bar 1", "Keep one"]),
        ({"time": at(0, 2, 1)}, ["X, bar 2", "1970-01-02 is before 1970-01-03", "Sort"]),
        ({"high": [12, 9, 14]}, ["X, bar 1", "high 9.0 is below low 10.0"]),
        ({"open": [10, 11, 0]}, ["X, bar 2", "open is 0.0", "above 0"]),
        ({"close": [11, -3, 13]}, ["X, bar 1", "close is -3.0"]),
        ({"low": [np.nan, 10, 11]}, ["X, bar 0", "low is nan"]),
        ({"high": [12, np.inf, 14]}, ["X, bar 1", "high is inf"]),
        ({"low": [9, 10, 1e-200]}, ["X, bar 2", "low is 1e-200", "from 1e-150 to 1e+150"]),
        ({"high": [12, 1e200, 14]}, ["X, bar 1", "high is 1e+200"]),
        ({"volume": [1, -1, 0]}, ["X, bar 1", "volume is -1.0", "at least 0"]),
        ({"volume": [1, np.nan, 0]}, ["X, bar 1", "volume is nan"]),
        ({"close": [11, 12]}, ["close has shape (2,)", "3 bars"]),
        ({"time": [0.0, 1.0, 2.0]}, ["time has dtype float64", "int64"]),
        (
            {"time": at(), "open": [], "high": [], "low": [], "close": [], "volume": []},
            ["no bars"],
        ),
    ],
)
def test_bars_that_are_refused(changes, says):
    with pytest.raises(MarketDataError) as caught:
        make(**changes)
    for part in says:
        assert part in str(caught.value)


def test_bars_are_copies_and_read_only():
    volume = np.array([1.0, 2.0, 3.0])
    bars = make(volume=volume)
    volume[0] = 99
    assert bars.volume.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        bars.close[0] = 1
    assert len(bars) == 3
    assert bars.notes == ()


def test_bars_without_volume_are_counted():
    assert make(volume=[0, 2, 0]).zero_volume_bars == 2


@pytest.mark.parametrize(
    ("time", "intraday", "gaps"),
    [
        # 1970-01-01 was a Thursday: Thursday, Friday, Tuesday is a long weekend, Wednesday is not.
        (at(0, 1, 5), False, 0),
        (at(0, 1, 6), False, 1),
        (at(0, 7, 14), False, 0),
        (at(0, 31, 59), False, 0),
        (at(0, 1 / 24, 2 / 24), True, 0),
        (at(0, 1 / 24, 1 + 1 / 24), True, 0),  # a night
    ],
)
def test_gaps(time, intraday, gaps):
    assert make(time=time, intraday=intraday).gaps == gaps


def test_a_missing_day_is_a_gap_where_weekends_are_traded():
    days = at(0, 1, 2, 3, 5, 6)
    price = np.full(6, 10.0)
    assert Bars("X", days, price, price, price, price, price).gaps == 1


def days_on(weekdays, weeks, without=()):
    """Dates of the weeks from Monday 1970-01-05 on."""
    first = 4
    dates = [first + 7 * week + day for week in range(weeks) for day in weekdays]
    return np.array([d for d in dates if d - first not in without], dtype=np.int64) * DAY


def flat(time, **options):
    price = np.full(len(time), 10.0)
    return Bars("X", time, price, price, price, price, price, **options)


@pytest.mark.parametrize(
    ("weekdays", "without", "gaps"),
    [
        pytest.param(range(5), (), 0, id="Monday to Friday"),
        pytest.param(range(5), (14,), 0, id="a Monday off"),
        pytest.param(range(5), (14, 15), 1, id="and a Tuesday"),
        # Futures that open on Sunday evening have a bar of that date.
        pytest.param((0, 1, 2, 3, 4, 6), (), 0, id="Sunday to Friday"),
        pytest.param((0, 1, 2, 3, 4, 6), (20,), 0, id="a Sunday off"),
        pytest.param((0, 1, 2, 3, 4, 6), (18, 20), 1, id="a Friday too"),
        pytest.param((0, 1, 2, 3, 6), (), 0, id="Sunday to Thursday"),
        pytest.param((0, 1, 2, 3, 6), (20,), 0, id="and a Sunday off"),
        pytest.param(range(7), (), 0, id="every day"),
        pytest.param(range(7), (20,), 1, id="every day but one"),
    ],
)
def test_gaps_by_the_weekdays_that_are_traded(weekdays, without, gaps):
    assert flat(days_on(weekdays, 12, without)).gaps == gaps


def test_one_saturday_makes_no_weekend_a_gap():
    time = np.sort(np.append(days_on(range(5), 12), (4 + 5) * DAY))
    assert flat(time).gaps == 0


@pytest.mark.parametrize(("days", "gaps"), [(4, 4), (5, 0), (40, 0)])
def test_a_break_at_the_same_hour_on_many_dates_is_the_sessions(days, gaps):
    hours = [24 * day + hour for day in range(days) for hour in (*range(9, 17), *range(18, 22))]
    assert flat(np.array(hours) * HOUR, intraday=True).gaps == gaps


def test_a_gap_elsewhere_stays_one_beside_a_break():
    hours = [24 * day + hour for day in range(20) for hour in (*range(9, 17), *range(18, 22))]
    hours.remove(24 * 7 + 11)
    bars = flat(np.array(hours) * HOUR, intraday=True)
    assert bars.gaps == 1
    assert bars.time[find_gaps(bars.time, intraday=True)].tolist() == [(24 * 7 + 10) * HOUR]


def test_remarks_stand_first_in_the_notes():
    bars = make(source=Source("x.csv", "CSV", remarks=("read with care",)), open=[10, 15, 12])
    assert bars.notes[0] == "read with care"
    assert len(bars.notes) == 2


def test_bars_that_lie_centuries_apart():
    with pytest.raises(MarketDataError, match=r"bar 2: the time 2200-01-01 .* 290 years"):
        make(time=np.array(["1700-01-01", "1701-01-01", "2200-01-01"], "M8[ns]").astype(np.int64))


def test_a_missing_hour_is_a_gap():
    hours = np.array([9, 10, 11, 13, 14, 33, 34], dtype=np.int64) * HOUR
    price = np.full(7, 10.0)
    assert Bars("X", hours, price, price, price, price, price, intraday=True).gaps == 1


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({"open": [10, 15, 12]}, ["1 bars have", "1970-01-02"]),
        ({"close": [8, 12, 10]}, ["2 bars have", "1970-01-01"]),
        ({"open": [10, 13.000001, 12]}, []),  # rounding
        (
            {"open": [10, 5, 12], "low": [9, 5, 11]},
            ["1970-01-02: opens at 0.455 times", "1970-01-03"],
        ),
    ],
)
def test_notes(changes, notes):
    found = " ".join(make(**changes | ({"close": [11, 6, 13]} if "low" in changes else {})).notes)
    for part in notes:
        assert part in found
    assert notes or not found


def test_many_jumps_are_counted():
    price = np.array([1.0, 2.0] * 10)
    time = np.arange(20, dtype=np.int64) * DAY
    notes = Bars("X", time, price, price, price, price, price).notes
    assert len(notes) == 9
    assert notes[-1] == "11 more jumps like these"


@pytest.mark.parametrize("symbol", SAMPLE_SYMBOLS)
@pytest.mark.parametrize("adjust", [True, False])
def test_the_sample_loads(symbol, adjust):
    bars = load_sample(symbol, adjust=adjust)
    assert len(bars) == 3270
    assert bars.symbol == symbol
    assert bars.adjusted is adjust
    assert not bars.intraday
    assert bars.zero_volume_bars == 0
    assert bars.gaps == 3
    ends = bars.time[[0, -1]].astype("datetime64[ns]").astype("datetime64[D]")
    assert ends.astype(str).tolist() == ["2000-03-01", "2013-03-01"]


@pytest.mark.parametrize(
    ("symbol", "splits"), [("AAPL", ["2000-06-21", "2005-02-28"]), ("MSFT", ["2003-02-18"])]
)
def test_splits_jump_unless_adjusted(symbol, splits):
    raw, adjusted = load_sample(symbol, adjust=False), load_sample(symbol)
    for day in splits:
        i = int(np.searchsorted(raw.time, np.datetime64(day, "ns").astype(np.int64)))
        assert raw.open[i] / raw.close[i - 1] == pytest.approx(0.5, abs=0.02)
        assert adjusted.open[i] / adjusted.close[i - 1] == pytest.approx(1, abs=0.03)
        assert any(note.startswith(day) for note in raw.notes)
        assert not any(note.startswith(day) for note in adjusted.notes)


def test_adjusted_close_of_the_sample():
    bars = load_sample()
    assert bars.close[0] == pytest.approx(4.186662803811, rel=1e-12)
    # 118.56 x 4.186662803811 / 130.31 and 9,616,100 x 130.31 / 4.186662803811
    assert bars.open[0] == pytest.approx(3.809154, rel=1e-6)
    assert bars.volume[0] == pytest.approx(299_303_000, rel=1e-4)


def test_the_table_of_splits_takes_the_jumps_out():
    raw = load_sample(adjust=False)
    bars = adjust_by_table(raw, [("2000-06-21", 0.5), ("2005-02-28", 0.5)])
    assert bars.adjusted
    assert [note[:10] for note in bars.notes] == ["2000-09-29"]  # a real fall
    assert bars.close[0] == 130.31 / 4
    assert bars.volume[0] == 9616100 * 4
    assert bars.close[-1] == raw.close[-1]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([("1970-01-02", 0.5), ("1970-01-02", 2.0)], ["row 1", "'1970-01-02' repeats"]),
        ([("1970-01-01", 0.5)], ["row 0", "not within", "1970-01-01 to 1970-01-03"]),
        ([("1970-01-04", 0.5)], ["not within"]),
        ([("later", 0.5)], ["'later' is not a date"]),
        ([("1970-01-02", 0.0)], ["ratio is 0.0"]),
        ([("1970-01-02", float("inf"))], ["ratio is inf"]),
    ],
)
def test_tables_that_are_refused(table, says):
    with pytest.raises(MarketDataError) as caught:
        adjust_by_table(make(), table)
    for part in says:
        assert part in str(caught.value)


def test_bars_are_adjusted_once():
    with pytest.raises(MarketDataError, match="adjusted already"):
        adjust_by_table(make(adjusted=True), [("1970-01-02", 0.5)])


def test_an_unknown_sample_names_the_choices():
    with pytest.raises(MarketDataError, match=r"'GOOG'.*AAPL, IBM, MSFT"):
        load_sample("GOOG")


def test_the_sample_is_what_its_provenance_says():
    data = files("onegraph.trainer.market") / "data"
    packed = (data / "sample.csv.gz").read_bytes()
    assert packed[4:8] == bytes(4)  # no time in the gzip header
    digest = hashlib.sha256(gzip.decompress(packed)).hexdigest()
    assert digest in (data / "SOURCE.md").read_text(encoding="utf-8")


SPLITS = {
    "AAPL": [("2000-06-21", 0.5), ("2005-02-28", 0.5)],
    "MSFT": [("2003-02-18", 0.5)],
}

#: A jump of AAPL that is no split.
REAL_FALL = "2000-09-29"


@pytest.mark.parametrize(
    ("symbol", "dividends", "ends"),
    [("AAPL", 3, ("2012-08-09", "2013-02-07")), ("MSFT", 37, ("2003-02-19", "2013-02-19"))],
)
def test_the_table_agrees_with_the_adjusted_close_up_to_dividends(symbol, dividends, ends):
    raw, adjusted = load_sample(symbol, adjust=False), load_sample(symbol)
    flagged = {note[:10] for note in raw.notes} - {REAL_FALL}
    assert flagged == {day for day, _ in SPLITS[symbol]}
    bars = adjust_by_table(raw, SPLITS[symbol])
    assert not {note[:10] for note in bars.notes} - {REAL_FALL}
    # A dividend moves the adjusted close alone, and up; on every other day both move alike.
    apart = np.diff(np.log(adjusted.close / bars.close))
    paid = np.flatnonzero(np.abs(apart) > 1e-12)
    days = raw.time[paid + 1].astype("datetime64[ns]").astype("datetime64[D]").astype(str)
    assert (len(paid), days[0], days[-1]) == (dividends, *ends)
    assert (apart[paid] > 0.002).all()
    assert (apart[paid] < 0.11).all()
    # Volume is in shares of after the splits.
    for day, _ in SPLITS[symbol]:
        i = int(np.searchsorted(raw.time, np.datetime64(day, "ns").astype(np.int64))) - 1
        assert bars.volume[i] == raw.volume[i] * raw_shares(symbol, day)


def raw_shares(symbol, day):
    """Shares of today for one before `day`."""
    return 2 ** sum(split >= day for split, _ in SPLITS[symbol])


def test_a_table_from_a_file(tmp_path):
    path = tmp_path / "splits.csv"
    path.write_text("\ufeffDate,Ratio\n\n2005-02-28, 0.5\n2000-06-21,0.5\n")
    table = read_adjustments(path)
    assert table.rows == (("2005-02-28", 0.5), ("2000-06-21", 0.5))
    assert table.where == (f"{path}, line 3", f"{path}, line 4")
    raw = load_sample(adjust=False)
    one, two = adjust_by_table(raw, table), adjust_by_table(raw, SPLITS["AAPL"])
    assert one.close.tobytes() == two.close.tobytes()
    path.write_text("2000-06-21,0.5")
    assert read_adjustments(path).rows == (("2000-06-21", 0.5),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ["no adjustments", "date,ratio"]),
        ("date,ratio\n", ["no adjustments"]),
        ("date,ratio\n2005-02-28\n", ["line 2", "'2005-02-28' is not a date and a ratio"]),
        ("date;ratio\n2005-02-28;0.5\n", ["line 1", "'date;ratio'"]),
        ("date,ratio\n2005-02-28,half\n", ["line 2", "the ratio is 'half', not a number"]),
        ("date,ratio\n2005-02-28,0\n", ["line 2", "ratio is 0.0", "above 0"]),
        ("date,ratio\n2005-02-28,nan\n", ["line 2", "ratio is nan"]),
        ("date,ratio\n28.02.2005,0.5\n", ["line 2", "'28.02.2005' is not a date", "2005-02-28"]),
        ("date,ratio\n1999-02-28,0.5\n", ["line 2", "not within the bars, 2000-03-01 to"]),
        ("date,ratio\n2300-02-28,0.5\n", ["line 2", "'2300-02-28' is not within"]),
        ("2005-02-28,0.5\n2005-02-28,2\n", ["line 2", "repeats that of", "line 1"]),
        ('2005-02-28,"0.5\n', ["not CSV"]),
        (b"\xff\xfe", ["0xff", "UTF-8"]),
    ],
)
def test_tables_from_files_that_are_refused(tmp_path, text, says):
    path = tmp_path / "splits.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MarketDataError) as caught:
        adjust_by_table(load_sample(adjust=False), read_adjustments(path))
    assert str(caught.value).startswith(str(path))
    for part in says:
        assert part in str(caught.value)


def test_a_table_that_is_no_file(tmp_path):
    with pytest.raises(MarketDataError, match=r"absent\.csv: the adjustments cannot be opened"):
        read_adjustments(tmp_path / "absent.csv")


def test_a_roll_at_a_time_of_day():
    time = np.arange(4, dtype=np.int64) * HOUR
    price = np.array([10.0, 10.0, 20.0, 20.0])
    bars = Bars("X", time, price, price, price, price, price, intraday=True)
    for stamp in ("1970-01-01T02:00", "1970-01-01T03:00+01:00"):
        assert adjust_by_table(bars, [(stamp, 2.0)]).close.tolist() == [20.0] * 4
