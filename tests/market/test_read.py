"""Reading files: the layouts that are read, and each error with its place, value and remedy."""

import gzip
import sys
from datetime import date, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.trainer.market import MarketDataError, read_bars

HEADER = "Date,Open,High,Low,Close,Volume"
GOOD = f"""{HEADER}
2020-01-02,10,12,9,11,100
2020-01-03,11,13,10,12,200
2020-01-06,12,14,11,13,0
"""


def write(folder, text, name="x.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def times(bars):
    return bars.time.astype("datetime64[ns]").astype("datetime64[s]").astype(str).tolist()


def same(one, two):
    columns = ("time", "open", "high", "low", "close", "volume")
    return all(getattr(one, c).tobytes() == getattr(two, c).tobytes() for c in columns)


def test_plain_csv(tmp_path):
    bars = read_bars(write(tmp_path, GOOD, "IBM.csv"))
    assert bars.symbol == "IBM"
    assert times(bars) == ["2020-01-02T00:00:00", "2020-01-03T00:00:00", "2020-01-06T00:00:00"]
    assert bars.open.tolist() == [10, 11, 12]
    assert bars.high.tolist() == [12, 13, 14]
    assert bars.low.tolist() == [9, 10, 11]
    assert bars.close.tolist() == [11, 12, 13]
    assert bars.volume.tolist() == [100, 200, 0]
    assert (bars.adjusted, bars.intraday, bars.zero_volume_bars, bars.gaps) == (False, False, 1, 0)


INDEXED = "".join(
    f"{'' if i == 0 else i - 1},{line}\n" for i, line in enumerate(GOOD.strip().split("\n"))
)
NEWEST_FIRST = "\n".join([HEADER, *reversed(GOOD.strip().split("\n")[1:])])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(INDEXED, id="index column"),
        pytest.param(INDEXED.replace(",Date", "Unnamed: 0,Date", 1), id="named index column"),
        pytest.param(NEWEST_FIRST, id="newest first"),
        pytest.param(GOOD.replace(",", ";"), id="semicolons"),
        pytest.param(GOOD.replace("\n", "\r\n"), id="CRLF"),
        pytest.param("\ufeff" + GOOD, id="byte order mark"),
        pytest.param(GOOD.replace("Date,Open", "TIMESTAMP, open "), id="case and spaces"),
        pytest.param(GOOD + "\n\n", id="empty lines at the end"),
        pytest.param(GOOD.replace("\n", "\n  \t\n"), id="blank lines"),
        pytest.param(GOOD.replace("\n", "\r"), id="CR"),
        pytest.param("\n".join(",".join(f'"{field}"' for field in line.split(","))
                               for line in GOOD.strip().split("\n")), id="all quoted"),
        pytest.param(GOOD.replace(",", " , "), id="spaces around"),
        pytest.param("".join(
            f"{line},{'n,n' if i == 0 else '1,2'}\n"
            for i, line in enumerate(GOOD.strip().split("\n"))), id="others, twice"),
        pytest.param(";".join(["", *HEADER.split(",")]) + "\n" + "".join(
            f"{i};{line.replace(',', ';')}\n"
            for i, line in enumerate(reversed(GOOD.strip().split("\n")[1:]))),
            id="index, semicolons, newest first"),
        pytest.param(GOOD.replace("2020-01-02", '"2020-01-02"'), id="quoted"),
        pytest.param(GOOD.replace("2020-01-02", "1/2/2020").replace(
            "2020-01-03", "1/3/2020").replace("2020-01-06", "01/06/2020"), id="month/day/year"),
        pytest.param(GOOD.replace("2020-01-02", "02.01.2020 00:00:00.000").replace(
            "2020-01-03", "03.01.2020 00:00:00.000").replace(
            "2020-01-06", "06.01.2020 00:00:00.000"), id="day.month.year"),
        pytest.param("".join(
            f"{line},{'Ticker' if i == 0 else 'X'}\n"
            for i, line in enumerate(GOOD.strip().split("\n"))), id="one symbol"),
        pytest.param(GOOD.replace("2020-01-02", "2020-01-02 00:00:00-05:00").replace(
            "2020-01-03", "2020-01-03 00:00:00-05:00").replace(
            "2020-01-06", "2020-01-06 00:00:00-05:00"), id="local midnights"),
    ],
)  # fmt: skip
def test_layouts_read_alike(tmp_path, text):
    assert same(read_bars(write(tmp_path, text)), read_bars(write(tmp_path, GOOD, "good.csv")))


def test_gzip_is_told_by_its_content(tmp_path):
    plain = read_bars(write(tmp_path, GOOD))
    assert same(plain, read_bars(write(tmp_path, gzip.compress(GOOD.encode()), "x.csv.gz")))
    assert same(plain, read_bars(write(tmp_path, gzip.compress(GOOD.encode()), "x.csv")))


prices = st.lists(
    st.tuples(st.floats(1, 1e6), st.floats(1, 2), st.floats(1, 2), st.integers(0, 10**9)),
    min_size=1,
    max_size=20,
)


@settings(max_examples=30, deadline=None)
@given(rows=prices, seconds=st.integers(1, 10**6))
def test_separator_order_and_gzip_make_no_difference(tmp_path_factory, rows, seconds):
    folder = tmp_path_factory.mktemp("same")
    start = np.datetime64("2020-01-01T00:00:01", "s")
    lines = [
        f"{start + i * np.timedelta64(seconds, 's')},{p!r},{p * up!r},{p / down!r},{p!r},{volume}"
        for i, (p, up, down, volume) in enumerate(rows)
    ]
    plain = "\n".join([HEADER, *lines])
    reverse = "\n".join([HEADER, *reversed(lines)])
    bars = read_bars(write(folder, plain))
    assert bars.close.tolist() == [p for p, *_ in rows]
    assert same(bars, read_bars(write(folder, plain.replace(",", ";"))))
    assert same(bars, read_bars(write(folder, reverse)))
    assert same(bars, read_bars(write(folder, gzip.compress(reverse.encode()), "x.gz")))


SYMBOLS = """Symbol,Date,Open,High,Low,Close,Volume
A,2020-01-02,10,12,9,11,100
B,2020-01-02,20,22,19,21,100
A,2020-01-03,11,13,10,12,200
"""


def test_symbols_are_told_apart(tmp_path):
    path = write(tmp_path, SYMBOLS)
    assert read_bars(path, "A").close.tolist() == [11, 12]
    assert read_bars(path, "B").close.tolist() == [21]
    assert read_bars(path, "B").symbol == "B"
    assert read_bars(write(tmp_path, GOOD), "NAMED").symbol == "NAMED"


ADJUSTED = """Date,Open,High,Low,Close,Volume,Adj Close
2020-01-02,40,44,36,40,100,10
2020-01-03,11,13,10,12,200,12
"""


def test_adjusted_close(tmp_path):
    path = write(tmp_path, ADJUSTED)
    bars = read_bars(path)
    assert bars.adjusted
    assert [bars.open[0], bars.high[0], bars.low[0], bars.close[0]] == [10, 11, 9, 10]
    assert bars.volume.tolist() == [400, 200]
    assert bars.notes == ()
    raw = read_bars(path, adjust=False)
    assert not raw.adjusted
    assert raw.open.tolist() == [40, 11]
    assert raw.notes[0].startswith("2020-01-03: opens at 0.275 times")


def hourly(*stamps):
    rows = "\n".join(f"{stamp},10,12,9,11,100" for stamp in stamps)
    return f"{HEADER}\n{rows}\n"


@pytest.mark.parametrize(
    ("stamps", "options", "expected"),
    [
        (
            ["2020-01-02 10:00", "2020-01-02 11:00"],
            {},
            ["2020-01-02T10:00:00", "2020-01-02T11:00:00"],
        ),
        (
            ["2020-01-02 10:00", "2020-07-02 11:00"],
            {"timezone": "America/New_York"},
            ["2020-01-02T15:00:00", "2020-07-02T15:00:00"],
        ),
        # An offset that is written wins over the declared zone.
        (
            ["2020-01-02T10:00:00Z", "2020-01-02T13:00+0100"],
            {"timezone": "America/New_York"},
            ["2020-01-02T10:00:00", "2020-01-02T12:00:00"],
        ),
        (
            ["2020-01-02 10:00", "2020-01-02 11:00", "2020-01-02 14:00"],
            {"bar_stamp": "start"},
            ["2020-01-02T11:00:00", "2020-01-02T12:00:00", "2020-01-02T15:00:00"],
        ),
        (
            ["2020-01-02 10:00", "2020-01-02 11:30"],
            {"bar_stamp": "start", "bar_seconds": 60},
            ["2020-01-02T10:01:00", "2020-01-02T11:31:00"],
        ),
        # Dates name the whole day: neither the zone nor the stamp's end moves them.
        (
            ["2020-01-02", "2020-01-03"],
            {"timezone": "America/New_York", "bar_stamp": "start"},
            ["2020-01-02T00:00:00", "2020-01-03T00:00:00"],
        ),
        # Either side of the hour that New York's clocks showed twice on 2020-11-01.
        (
            ["2020-11-01 00:59:59", "2020-11-01 02:00"],
            {"timezone": "America/New_York"},
            ["2020-11-01T04:59:59", "2020-11-01T07:00:00"],
        ),
    ],
)  # fmt: skip
def test_times_in_utc(tmp_path, stamps, options, expected):
    assert times(read_bars(write(tmp_path, hourly(*stamps)), **options)) == expected


@pytest.mark.parametrize(
    ("stamps", "intraday"),
    [
        (["2020-01-02 10:00", "2020-01-02 11:00"], True),
        (["2020-01-02", "2020-01-03"], False),
        (["2020-01-02 16:00", "2020-01-03 16:00"], False),
    ],
)
def test_what_is_intraday(tmp_path, stamps, intraday):
    assert read_bars(write(tmp_path, hourly(*stamps))).intraday is intraday


def test_nanoseconds_are_kept(tmp_path):
    bars = read_bars(write(tmp_path, hourly("2020-01-02 10:00:00.123456789")))
    assert bars.time[0] % 1_000_000_000 == 123_456_789


ROW = "2020-01-02,10,12,9,11,100\n"


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        pytest.param("", {}, ["empty", "Give a CSV"], id="empty file"),
        pytest.param("\n" + GOOD, {}, ["empty line"], id="empty first line"),
        pytest.param(HEADER + "\n", {}, ["header and no rows"], id="header only"),
        pytest.param("Date,Open,High,Low,Volume\n" + ROW, {},
                     ["line 1", "absent: Close;", "'Volume'", "Name the columns"], id="no Close"),
        pytest.param("Open,High,Low,Close\n" + ROW, {}, ["absent: Date, Volume"], id="no Date"),
        pytest.param("a b c\n1 2 3\n", {}, ["line 1", "absent", "'a b c"], id="other separator"),
        pytest.param(HEADER + ",close\n" + ROW, {},
                     ["line 1", "'Close' and 'close'", "Keep one"], id="Close twice"),
        pytest.param(HEADER + "\n" + ROW + "2020-01-03,10,12\n", {},
                     ["line 3", "3 fields, the header has 6", "'2020-01-03,10,12'"],
                     id="few fields"),
        pytest.param(HEADER + "\n2020-01-02,10,12,9,11,1,000\n", {},
                     ["line 2", "7 fields", "thousands"], id="thousands commas"),
        pytest.param(HEADER + "\n2020-01-02,ten,12,9,11,100\n", {},
                     ["line 2", "Open is 'ten', not a number", "decimal point"], id="a word"),
        pytest.param(HEADER + "\n2020-01-02,10,12,9,,100\n", {},
                     ["line 2", "Close is ''", "leave bars without one out"], id="a blank"),
        pytest.param(HEADER + "\n2020-01-02,1_0,12,9,11,100\n", {}, ["'1_0'"], id="underscore"),
        pytest.param(HEADER.replace(",", ";") + "\n2020-01-02;10;12;9;11,5;100\n", {},
                     ["Close is '11,5'", "decimal point"], id="decimal comma"),
        pytest.param(HEADER + "\n2020-01-02,10,12,9,nan,100\n", {},
                     ["line 2", "close is nan", "finite"], id="nan"),
        pytest.param(HEADER + "\n2020-01-02,10,inf,9,11,100\n", {}, ["high is inf"], id="inf"),
        pytest.param(HEADER + "\n2020-01-02,10,12,0,11,100\n", {}, ["low is 0.0"], id="price 0"),
        pytest.param(HEADER + "\n2020-01-02,10,12,9,11,-5\n", {},
                     ["line 2", "volume is -5.0"], id="volume below 0"),
        pytest.param(HEADER + "\n" + ROW + "\n2020-01-03,10,8,9,11,100\n", {},
                     ["line 4", "high 8.0 is below low 9.0"], id="high below low"),
        pytest.param(HEADER + "\n" + ROW + ROW, {},
                     ["line 3", "2020-01-02 repeats", "line 2"], id="duplicate"),
        pytest.param(GOOD + ROW.replace("-02", "-04"), {},
                     ["line 5", "2020-01-04 is before 2020-01-06", "line 4"], id="unsorted"),
        pytest.param(NEWEST_FIRST.replace("06,12,14", "06,12,1"), {},
                     ["line 2", "high 1.0 is below"], id="newest first keeps line numbers"),
        pytest.param(HEADER + "\n" + ROW.replace("2020", "soon"), {},
                     ["line 2", "'soon-01-02' is not a date"], id="no date"),
        pytest.param(HEADER + "\n" + ROW.replace("01-02", "02-30"), {},
                     ["line 2", "'2020-02-30' is not in the calendar"], id="February 30"),
        pytest.param(HEADER + "\n" + ROW.replace("2020-01-02", "13/01/2020"), {},
                     ["line 2", "'13/01/2020' has no month 13", "date_order = 'day-first'"],
                     id="day/month/year"),
        pytest.param(HEADER + "\n" + ROW.replace("2020-01-02", "1/13/2020"),
                     {"date_order": "day-first"},
                     ["line 2", "'1/13/2020' has no month 13", "date_order = 'month-first'"],
                     id="month/day/year"),
        pytest.param(HEADER + "\n" + ROW.replace("2020-01-02", "13/13/2020"), {},
                     ["line 2", "'13/13/2020' is not in the calendar"], id="no month at all"),
        pytest.param(GOOD, {"date_order": "year-first"},
                     ["date_order", "'year-first'", "month-first or day-first"], id="date order"),
        pytest.param(HEADER + "\n" + ROW.replace("2020", "1066"), {},
                     ["line 2", "the year 1066", "64 bits"], id="too early"),
        pytest.param(HEADER + "\n" + ROW.replace("2020", "9999"), {},
                     ["line 2", "the year 9999", "2261"], id="too late"),
        pytest.param(HEADER + "\n" + ROW.replace("2020", "20200"), {},
                     ["line 2", "'20200-01-02' is not a date"], id="five digits of year"),
        pytest.param(HEADER + "\n" + ROW.replace("2020", "1700") + ROW.replace("2020", "2200"), {},
                     ["line 3", "2200-01-02", "290 years after"], id="centuries apart"),
        pytest.param(HEADER + "\n" + ROW.replace("2020-01-02", "1577923200"), {},
                     ["line 2", "'1577923200' is not a date"], id="seconds since 1970"),
        pytest.param(HEADER + "\n2020-01-02,10,12,9,NaN,100\n", {}, ["close is nan"], id="NaN"),
        pytest.param(HEADER + "\n2020-01-02,10,12,9,N/A,100\n", {}, ["Close is 'N/A'"], id="N/A"),
        pytest.param(HEADER + "\n2020-01-02,10,1e999,9,11,100\n", {}, ["high is inf"], id="1e999"),
        pytest.param(HEADER + "\n2020-01-02,-10,12,9,11,100\n", {}, ["open is -10.0"], id="minus"),
        pytest.param(HEADER + "\n" + '2020-01-02,"1,010",12,9,11,100\n', {},
                     ["line 2", "Open is '1,010'", "no thousands marks"], id="quoted thousands"),
        pytest.param(HEADER + "\n,,,,,\n", {}, ["line 2", "'' is not a date"], id="empty fields"),
        pytest.param("Date,Time,Open,High,Low,Close,Volume\n", {},
                     ["'Date' and 'Time' both give the time", "one column"], id="date and time"),
        pytest.param("Date,Open,High,Low,Close,Volume,\n", {}, ["no rows"], id="comma at the end"),
        pytest.param(bytes(range(128)) * 900, {}, ["line 1", "absent: Date, Open"], id="binary"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(99), {}, ["0x89", "UTF-8"], id="picture"),
        pytest.param(b"PK\x03\x04" + bytes(99), {}, ["zip archive", "CSV"], id="workbook"),
        pytest.param(hourly("2020-01-02 10:00", "2020-01-02 25:00"), {},
                     ["line 3", "not in the calendar"], id="hour 25"),
        pytest.param(hourly("2020-01-02 10:00+99:00"), {}, ["not in the calendar"], id="offset"),
        pytest.param(hourly("2020-01-02 10:00", "2020-01-03"), {},
                     ["line 3", "2020-01-03 has no time of day"], id="date among times"),
        pytest.param(hourly("2020-11-01 00:30", "2020-11-01 01:30"),
                     {"timezone": "America/New_York"},
                     ["line 3", "2020-11-01 01:30:00 is ambiguous", "offset"],
                     id="ambiguous"),
        pytest.param(hourly("2020-03-08 02:30"), {"timezone": "America/New_York"},
                     ["line 2", "2020-03-08 02:30:00 is impossible", "offset"], id="impossible"),
        pytest.param(GOOD, {"timezone": "Mars/Olympus"}, ["'Mars/Olympus'", "IANA"], id="zone"),
        pytest.param(GOOD.replace("Date", "Gmt time"), {"timezone": "Europe/Zurich"},
                     ["GMT", "Europe/Zurich"], id="GMT in another zone"),
        pytest.param(GOOD, {"bar_stamp": "middle"}, ["'middle'", "end or start"], id="stamp"),
        pytest.param(hourly("2020-01-02 10:00"), {"bar_stamp": "start"},
                     ["one bar", "bar_seconds"], id="length of one bar"),
        pytest.param(hourly("2020-01-02 10:00", "2020-01-02 11:00", "2020-01-02 12:30"),
                     {"bar_stamp": "start"}, ["3600 s and 5400 s", "bar_seconds"], id="odd steps"),
        pytest.param(hourly("2020-01-02 10:00"), {"bar_stamp": "start", "bar_seconds": 0},
                     ["bar_seconds is 0"], id="length 0"),
        pytest.param(hourly("2020-01-02 10:00"),
                     {"bar_stamp": "start", "bar_seconds": float("nan")},
                     ["bar_seconds is nan"], id="length nan"),
        pytest.param(hourly("2020-01-02 10:00"), {"bar_stamp": "start", "bar_seconds": 1e15},
                     ["bar_seconds is 1000000000000000.0", "at most"], id="length of ages"),
        pytest.param(SYMBOLS, {}, ["2 symbols", "symbol=", "A, B"], id="several symbols"),
        pytest.param(SYMBOLS, {"symbol": "C"}, ["no symbol 'C'", "A, B"], id="absent symbol"),
        pytest.param(SYMBOLS.replace("B,", ","), {"symbol": "A"},
                     ["line 3", "Symbol is empty"], id="empty symbol"),
        pytest.param(ADJUSTED.replace(",100,10", ",100,0"), {},
                     ["line 2", "adjusted close is 0.0", "adjust=False"], id="adjusted close 0"),
        pytest.param(GOOD.encode("utf-16"), {}, ["not UTF-8", "Save"], id="UTF-16"),
        pytest.param(gzip.compress(GOOD.encode())[:-12], {}, ["gzip data"], id="cut gzip"),
        pytest.param(GOOD.replace("2020-01-03", '"2020-01-03'), {}, ["not CSV"], id="open quote"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, text, options, says):
    path = write(tmp_path, text)
    with pytest.raises(MarketDataError) as caught:
        read_bars(path, **options)
    message = str(caught.value)
    for part in says:
        assert part in message
    assert len(message) < 1500
    if not {"timezone", "bar_stamp", "date_order"} & set(options):
        assert message.startswith(str(path))


@pytest.mark.parametrize("name", ["absent.csv", "."])
def test_a_file_that_cannot_be_opened(tmp_path, name):
    with pytest.raises(MarketDataError, match="cannot be opened") as caught:
        read_bars(tmp_path / name)
    assert str(tmp_path) in str(caught.value)


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow")


def write_parquet(arrow, path, time, **changes):
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "Date": time,
        "Open": [10.0, 11.0, 12.0],
        "High": [12.0, 13.0, 14.0],
        "Low": [9.0, 10.0, 11.0],
        "Close": [11.0, 12.0, 13.0],
        "Volume": [100, 200, 0],
        **changes,
    }
    parquet.write_table(arrow.table({k: v for k, v in columns.items() if v is not None}), path)
    return path


DATES = [date(2020, 1, 2), date(2020, 1, 3), date(2020, 1, 6)]
NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize("kind", ["date", "text", "naive us", "naive ns", "local midnights"])
def test_parquet_reads_like_csv(tmp_path, arrow, kind):
    stamps = [datetime(d.year, d.month, d.day) for d in DATES]  # noqa: DTZ001
    time = {
        "date": lambda: DATES,
        "text": lambda: [d.isoformat() for d in DATES],
        "naive us": lambda: arrow.array(stamps, type=arrow.timestamp("us")),
        "naive ns": lambda: arrow.array(stamps, type=arrow.timestamp("ns")),
        "local midnights": lambda: arrow.array(
            [s.replace(tzinfo=NEW_YORK) for s in stamps],
            type=arrow.timestamp("ns", tz="America/New_York"),
        ),
    }[kind]()
    bars = read_bars(write_parquet(arrow, tmp_path / "x.parquet", time))
    assert same(bars, read_bars(write(tmp_path, GOOD)))


def test_parquet_times(tmp_path, arrow):
    stamps = [np.datetime64(f"2020-01-02T1{i}:00:00.000000001") for i in range(3)]
    naive = arrow.array(np.array(stamps), type=arrow.timestamp("ns"))
    path = write_parquet(arrow, tmp_path / "x.pq", naive)
    bars = read_bars(path, timezone="America/New_York", bar_stamp="start")
    assert times(bars)[0] == "2020-01-02T16:00:00"
    assert (bars.time % 1000 == 1).all()
    assert bars.intraday


def test_parquet_symbols(tmp_path, arrow):
    path = write_parquet(arrow, tmp_path / "x.parquet", DATES, Ticker=["B", "A", "B"])
    assert read_bars(path, "B").close.tolist() == [11, 13]
    with pytest.raises(MarketDataError, match="A, B"):
        read_bars(path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"Close": None}, ["absent: Close"]),
        ({"Close": [11.0, None, 13.0]}, ["row 2", "column Close is null", "nothing is filled"]),
        ({"Close": ["a", "b", "c"]}, ["column Close holds string", "float64"]),
        ({"Date": [1, 2, 3]}, ["column Date holds int64", "timestamp"]),
        ({"Date": [DATES[0], None, DATES[2]]}, ["row 2", "column Date is null"]),
        ({"Date": [DATES[0], DATES[0], DATES[2]]}, ["row 2", "2020-01-02 repeats"]),
        ({"Date": ["2020-01-02", "?", "2020-01-03"]}, ["row 2", "'?' is not a date"]),
        ({"High": [12.0, 13.0, 1.0], "Ticker": ["A", "B", "B"]}, ["row 3", "high 1.0"]),
        ({"Ticker": ["A", None, "B"]}, ["row 2", "column Ticker is null"]),
    ],
)
def test_parquet_that_is_refused(tmp_path, arrow, changes, says):
    path = write_parquet(arrow, tmp_path / "x.parquet", DATES, **changes)
    with pytest.raises(MarketDataError) as caught:
        read_bars(path, "B" if "Ticker" in changes else None)
    message = str(caught.value)
    assert message.startswith(str(path))
    for part in says:
        assert part in message


def test_empty_and_broken_parquet(tmp_path, arrow):
    none = {name: arrow.array([], arrow.float64()) for name in ("Open", "High", "Low", "Close")}
    empty = arrow.array([], arrow.float64())
    path = write_parquet(
        arrow, tmp_path / "x.parquet", arrow.array([], arrow.date32()), Volume=empty, **none
    )
    with pytest.raises(MarketDataError, match="no rows"):
        read_bars(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(MarketDataError, match="not a Parquet file that can be read"):
        read_bars(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(MarketDataError, match="starts with b'noth'"):
        read_bars(path)


def test_without_pyarrow_the_extra_is_named(tmp_path, arrow, monkeypatch):
    path = write_parquet(arrow, tmp_path / "x.parquet", DATES)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MarketDataError, match=r"onegraph\[parquet\]"):
        read_bars(path)
