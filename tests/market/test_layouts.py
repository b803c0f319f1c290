"""Files as they are met in the wild, a few lines of each, and what is read from them."""

import gzip

import numpy as np
import pytest

from onegraph.trainer.market import MarketDataError, read_bars

#: An index column without a name, as a data frame writes it; an instrument's name in each row.
INDEXED = """,Date,Open,High,Low,Close,Volume,Name
0,2013-02-08,15.07,15.12,14.63,14.75,8407500,AAL
1,2013-02-11,14.89,15.01,14.26,14.46,8882000,AAL
2,2013-02-12,14.45,14.51,14.1,14.27,8126000,AAL
"""

#: Daily shares with the close that splits and dividends are taken out of.
ADJ_CLOSE = """Date,Open,High,Low,Close,Adj Close,Volume
2014-06-05,646.20,649.37,642.61,647.35,83.20,75951400
2014-06-06,649.90,651.26,644.47,645.57,82.97,87484600
2014-06-09,92.70,93.88,91.75,93.70,84.30,75415000
"""

#: Ten minutes of a currency pair, by a bank's clock in Geneva.
DOTTED = """Gmt time,Open,High,Low,Close,Volume
31.03.2017 22:50:00.000,1.06529,1.06541,1.06520,1.06530,421.45
31.03.2017 22:51:00.000,1.06530,1.06535,1.06518,1.06522,188.02
31.03.2017 22:52:00.000,1.06522,1.06522,1.06522,1.06522,0
31.03.2017 22:53:00.000,1.06523,1.06540,1.06519,1.06537,305.11
"""

#: Newest first, months and days without their zeros.
AMERICAN = """Date,Open,High,Low,Close,Volume
10/13/2023,430.95,431.57,425.33,427.50,95201350
10/12/2023,435.95,436.45,429.88,432.46,81154200
10/2/2023,426.62,428.60,424.46,427.31,83798600
9/29/2023,431.67,431.85,425.91,427.48,115111300
"""

#: From a terminal whose lists are separated by semicolons.
SEMICOLONS = """Date;Open;High;Low;Close;Volume
2021-03-01 09:00;13862.5;13941.0;13861.5;13936.0;9120
2021-03-01 10:00;13936.0;13990.5;13930.0;13988.0;8034
2021-03-01 11:00;13988.5;14021.0;13972.5;14015.5;7420
"""


def write(folder, text, name="x.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def times(bars):
    return bars.time.astype("datetime64[ns]").astype("datetime64[m]").astype(str).tolist()


def test_an_index_column_first(tmp_path):
    bars = read_bars(write(tmp_path, INDEXED, "AAL_data.csv"))
    assert bars.source.layout == "CSV separated by ,"
    assert (bars.source.dates, bars.source.adjusted_close, bars.source.newest_first) == (
        True,
        False,
        False,
    )
    assert bars.symbol == "AAL_data"  # Name is no column that tells symbols apart
    assert times(bars) == ["2013-02-08T00:00", "2013-02-11T00:00", "2013-02-12T00:00"]
    assert bars.open.tolist() == [15.07, 14.89, 14.45]
    assert bars.volume.tolist() == [8407500, 8882000, 8126000]
    assert bars.gaps == 0  # 2013-02-08 was a Friday


def test_an_adjusted_close(tmp_path):
    bars = read_bars(path := write(tmp_path, ADJ_CLOSE))
    assert bars.source.adjusted_close
    assert bars.adjusted
    assert bars.notes == ()
    # 646.20 x 83.20 / 647.35
    assert bars.open[0] == pytest.approx(83.0522, abs=1e-4)
    assert bars.close.tolist() == pytest.approx([83.20, 82.97, 84.30], rel=1e-12)
    raw = read_bars(path, adjust=False)
    assert raw.source.adjusted_close
    assert not raw.adjusted
    assert raw.notes == (
        "2014-06-09: opens at 0.144 times the close before it: a split, a roll or a real move",
    )


def test_dotted_dates_with_milliseconds(tmp_path):
    bars = read_bars(write(tmp_path, DOTTED), bar_stamp="start")
    assert times(bars)[0] == "2017-03-31T22:51"
    assert bars.intraday
    assert bars.zero_volume_bars == 1
    assert bars.close.tolist() == [1.06530, 1.06522, 1.06522, 1.06537]
    with pytest.raises(MarketDataError, match="UTC"):
        read_bars(tmp_path / "x.csv", timezone="Europe/Zurich")
    local = write(tmp_path, DOTTED.replace("Gmt time", "Local time"))
    with pytest.raises(MarketDataError, match="absent: Date"):
        read_bars(local)
    local = write(tmp_path, DOTTED.replace("Gmt time", "Date"))
    bars = read_bars(local, timezone="Europe/Zurich")
    assert times(bars)[0] == "2017-03-31T20:50"  # summer time, two hours ahead of UTC


def test_american_dates_newest_first(tmp_path):
    bars = read_bars(write(tmp_path, AMERICAN))
    assert bars.source.newest_first
    days = ["2023-09-29", "2023-10-02", "2023-10-12", "2023-10-13"]
    assert [t[:10] for t in times(bars)] == days
    assert bars.close.tolist() == [427.48, 427.31, 432.46, 427.50]
    assert bars.notes == ()
    assert bars.gaps == 1  # from the 2nd to the 12th


def test_day_first_dates_are_declared(tmp_path):
    british = "\n".join(
        "/".join([*reversed(line.split("/")[:2]), line.split("/")[2]]) if "/" in line else line
        for line in AMERICAN.splitlines()
    )
    path = write(tmp_path, british, "british.csv")
    with pytest.raises(MarketDataError, match=r"line 2: '13/10/2023' .*date_order = 'day-first'"):
        read_bars(path)
    bars = read_bars(path, date_order="day-first")
    american = read_bars(write(tmp_path, AMERICAN))
    assert bars.time.tolist() == american.time.tolist()


@pytest.mark.parametrize(
    ("order", "months"),
    [("month-first", ["2020-01", "2020-01"]), ("day-first", ["2020-02", "2020-03"])],
)
def test_dates_that_read_both_ways_are_remarked_on(tmp_path, order, months):
    rows = "1/2/2020,10,12,9,11,100\n1/3/2020,11,13,10,12,200\n"
    path = write(tmp_path, "Date,Open,High,Low,Close,Volume\n" + rows)
    bars = read_bars(path, date_order=order)
    assert [t[:7] for t in times(bars)] == months
    assert bars.notes == (
        "dates such as 1/2/2020 could be read day-first and month-first, and no date in the file "
        f"tells; they were read {order} (date_order)",
    )


@pytest.mark.parametrize("dates", [["1/1/2020", "2/2/2020"], ["1/2/2020", "1/13/2020"]])
def test_dates_that_tell_are_not(tmp_path, dates):
    rows = "".join(f"{date},10,12,9,11,100\n" for date in dates)
    assert read_bars(write(tmp_path, "Date,Open,High,Low,Close,Volume\n" + rows)).notes == ()


def test_semicolons(tmp_path):
    bars = read_bars(write(tmp_path, SEMICOLONS), timezone="America/New_York", bar_stamp="start")
    assert bars.source.layout == "CSV separated by ;"
    assert times(bars) == ["2021-03-01T15:00", "2021-03-01T16:00", "2021-03-01T17:00"]
    assert bars.high.tolist() == [13941.0, 13990.5, 14021.0]


@pytest.mark.parametrize("text", [INDEXED, ADJ_CLOSE, DOTTED, AMERICAN, SEMICOLONS])
def test_each_of_them_gzipped(tmp_path, text):
    plain = read_bars(write(tmp_path, text, "x.csv"))
    packed = read_bars(write(tmp_path, gzip.compress(text.encode()), "x.csv.gz"))
    assert packed.source.layout == plain.source.layout + ", gzipped"
    for column in ("time", "open", "high", "low", "close", "volume"):
        assert getattr(packed, column).tobytes() == getattr(plain, column).tobytes()


def test_parquet_with_an_index_and_an_adjusted_close(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    days = np.array(["2014-06-05", "2014-06-06", "2014-06-09"], dtype="datetime64[ms]")
    table = arrow.table(
        {
            "Open": [646.20, 649.90, 92.70],
            "High": [649.37, 651.26, 93.88],
            "Low": [642.61, 644.47, 91.75],
            "Close": [647.35, 645.57, 93.70],
            "Adj Close": [83.20, 82.97, 84.30],
            "Volume": [75951400, 87484600, 75415000],
            "Date": days,
            "__index_level_0__": [0, 1, 2],
        }
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    bars = read_bars(tmp_path / "x.parquet")
    assert bars.source.layout == "Parquet"
    assert bars.source.adjusted_close
    same = read_bars(write(tmp_path, ADJ_CLOSE))
    for column in ("time", "open", "high", "low", "close", "volume"):
        assert getattr(bars, column).tobytes() == getattr(same, column).tobytes()


def test_parquet_text_dates_take_the_order_too(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    prices = {name: [10.0, 11.0] for name in ("Open", "High", "Low", "Close", "Volume")}
    dates = ["13/1/2020", "14/1/2020"]
    parquet.write_table(arrow.table({"Date": dates, **prices}), tmp_path / "x.parquet")
    with pytest.raises(MarketDataError, match="row 1: '13/1/2020' has no month 13"):
        read_bars(tmp_path / "x.parquet")
    bars = read_bars(tmp_path / "x.parquet", date_order="day-first")
    assert times(bars)[0] == "2020-01-13T00:00"
