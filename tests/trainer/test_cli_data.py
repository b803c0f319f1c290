"""``onegraph data inspect``: what it says of a file, and of one that can't be used."""

import re

import numpy as np
import pytest
from dbn_file import header, packed, record

from onegraph.trainer.cli import main


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def inspect(capsys, *arguments, code=0):
    """What is printed, with each row of a table as its cells and a space between them."""
    assert main(["data", "inspect", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    if code == 0:
        assert err == ""
    plain = re.sub(r"[ │┃]+", " ", re.sub(r"[━─┏┓┗┛┡┩╇┳┴┻├┤└┘┌┐┬┼]+", " ", out))
    return [line.strip() for line in plain.splitlines()], err


def sessions(first, days, hours, minutes=30):
    """Rows of half-hour bars, stamped with their ends, on `days` dates from `first` on."""
    lines = ["Date,Open,High,Low,Close,Volume"]
    rng = np.random.default_rng(3)
    for day in range(days):
        date = np.datetime64(first) + day
        if (date.astype(int) + 3) % 7 >= 5:
            continue
        for k in range(hours * 60 // minutes):
            stamp = date + np.timedelta64(9 * 60 + 30 + minutes * (k + 1), "m")
            price = 100 + rng.uniform(-1, 1)
            volume = 0 if k == 3 and day == 1 else 10
            lines.append(
                f"{stamp},{price:.2f},{price + 1:.2f},{price - 1:.2f},{price:.2f},{volume}"
            )
    return lines


def test_the_sample_is_what_is_known_of_it(capsys):
    lines, _ = inspect(capsys)
    for line in (
        "symbols in it AAPL, IBM, MSFT",
        "symbol AAPL",
        "bars 3,270",
        "first (UTC) 2000-03-01",
        "last (UTC) 2013-03-01",
        "clock dates, each midnight UTC whatever the time zone",
        "bar length 1 day",
        "bars a year (P) 251.5",
        "calendar daily, Mon Tue Wed Thu Fri",
        "gaps 3, the longest 7 days",
        "bars without volume 0",
        "jumps 1",
        "prices adjusted by the file's adjusted close",
        "gap: 7 days from 2001-09-10 to 2001-09-17",
        "note: 2000-09-29: opens at 0.527 times the close before it: a split, a roll or a real "
        "move",
        "the first bar with all of them is 2000-03-29 (bar 20)",
        "train 2000-03-29 2007-12-31 1,950",
        "validation 2008-01-02 2010-07-30 650",
        "test 2010-08-02 2013-03-01 650",
    ):
        assert line in lines
    names = [line.split()[0] for line in lines if re.match(r"(log_|volatility|range|close)", line)]
    assert len(names) == 10


def test_unadjusted_splits_are_flagged_and_a_table_takes_them_out(capsys, tmp_path):
    lines, _ = inspect(capsys, "sample:AAPL", "--no-adjust")
    assert "jumps 3" in lines
    assert "prices as traded; the file's adjusted close is left aside" in lines
    flagged = [line[6:16] for line in lines if line.startswith("note: 2")]
    assert flagged == ["2000-06-21", "2000-09-29", "2005-02-28"]
    (tmp_path / "splits.csv").write_text("date,ratio\n2000-06-21,0.5\n2005-02-28,0.5\n")
    table = ("--adjustments", "splits.csv")
    lines, _ = inspect(capsys, "sample:AAPL", "--no-adjust", *table)
    assert "jumps 1" in lines
    assert "prices adjusted by the table of splits and rolls" in lines
    _, err = inspect(capsys, "sample:AAPL", *table, code=1)
    assert "adjusted already" in err


def test_an_intraday_file_with_its_clock_sessions_gaps_and_split(capsys, tmp_path):
    lines = sessions("2021-03-01", 28, 7)
    del lines[20]
    (tmp_path / "x.csv").write_text("\n".join(lines).replace(",", ";"))
    out, _ = inspect(capsys, "x.csv", "--timezone", "America/New_York", "--bar-stamp", "end")
    for line in (
        "file x.csv (CSV separated by ;)",
        "symbols in it it names none",
        "symbol x",
        "first (UTC) 2021-03-01T15:00:00Z",
        "clock America/New_York, the file's times are the ends of its bars",
        "bar length 30 min",
        "calendar intraday, Mon Tue Wed Thu Fri",
        # Daylight saving began on 2021-03-14.
        "session (UTC) 15:00 to 21:30 on 10 dates",
        "session (UTC) 14:00 to 20:30 on 10 dates",
        "gaps 1, the longest 1 h",
        "gap: 1 h from 2021-03-02T17:00:00Z to 2021-03-02T18:00:00Z",
        "bars without volume 1",
        "jumps 0",
        "prices as traded; the file has no adjusted close",
    ):
        assert line in out
    assert any(line.startswith("time_of_day_sin ") for line in out)
    shifted, _ = inspect(capsys, "x.csv", "--bar-stamp", "start", "--bar-seconds", "900")
    assert "first (UTC) 2021-03-01T10:15:00Z" in shifted
    assert "clock UTC, the file's times are the starts of its bars" in shifted


def test_a_databento_file(capsys, tmp_path):
    dbn = pytest.importorskip("databento_dbn")
    mappings = [
        ("ES.c.0", "2024-01-01", "2024-01-03", 17),
        ("ES.c.0", "2024-01-03", "2025-01-01", 18),
    ]
    bars = [
        record(dbn, "ohlcv-1h", 17 + i // 24, f"2024-01-0{2 + i // 24}T{i % 24:02}:00",
               (100.0 + i // 24,) * 4)
        for i in range(48)
    ]  # fmt: skip
    data = packed(dbn, header(dbn, "ohlcv-1h", mappings) + b"".join(bars))
    (tmp_path / "es.dbn.zst").write_bytes(data)
    lines, _ = inspect(capsys, "es.dbn.zst")
    for line in (
        "file es.dbn.zst (Databento DBN, ohlcv-1h, zstd)",
        "symbols in it ES.c.0",
        "clock UTC, by the file",
        "bar length 1 h",
        "note: 2024-01-03: ES.c.0 rolls from instrument 17 to 18; as traded it opens at 1.01 times "
        "the close before it",
    ):
        assert line in lines


def test_a_config_names_the_file_the_features_and_the_split(capsys, tmp_path):
    (tmp_path / "run.toml").write_text(
        """
[env.market]
data = "sample:IBM"
train_end = 2008-01-01
validation_end = 2010-01-01
[env.market.features]
returns = [1]
volatility = []
volume_mean = 0
bar_shape = false
"""
    )
    lines, _ = inspect(capsys, "--config", "run.toml")
    assert "symbol IBM" in lines
    assert "the first bar with all of them is 2000-03-02 (bar 1)" in lines
    assert "train 2000-03-02 2007-12-31 1,969" in lines
    lines, _ = inspect(capsys, "sample:MSFT", "--config", "run.toml", "--set", "seed=3")
    assert "symbol MSFT" in lines


def test_ambiguous_dates_are_said(capsys, tmp_path):
    rows = [f"{month}/{day}/2020,10,12,9,11,1" for month in (1, 2, 3) for day in range(1, 13)]
    text = "\n".join(["Date,Open,High,Low,Close,Volume", *rows])
    (tmp_path / "x.csv").write_text(text)
    lines, _ = inspect(capsys, "x.csv")
    assert any(line.startswith("note: dates such as 1/2/2020 could be") for line in lines)
    assert "first (UTC) 2020-01-01" in lines
    _, err = inspect(capsys, "x.csv", "--date-order", "day-first", code=1)
    assert "x.csv, line 14: the time 2020-01-02 is before 2020-12-01" in err


def test_bars_too_few_to_train_on_are_shown_all_the_same(capsys, tmp_path):
    (tmp_path / "a[b].csv").write_text("\n".join(sessions("2021-03-01", 1, 5)))
    lines, err = inspect(capsys, "a[b].csv", code=1)
    assert "file a[b].csv (CSV separated by ,)" in lines
    assert "bars 10" in lines
    assert err == (
        "onegraph: error: a[b]: 10 bars, the features look back 20. Give at least 21 bars.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.csv"], "none.csv: it cannot be opened (No such file or directory)"),
        (["."], ".: it cannot be opened (Is a directory)"),
        (["empty.csv"], "empty.csv: the file is empty"),
        (["two.csv"], "two.csv: it holds 2 symbols and none was asked for. Pass symbol="),
        (["two.csv", "--symbol", "C"], "two.csv: it has no symbol 'C'. Choose one of A, B."),
        (["--config", "chain"], "chain trains on env.kind = 'chain', which has no bars"),
        (["sample", "--bar-stamp", "middle"], 'env.market.bar_stamp = "middle": use'),
        (["sample", "--bar-seconds", "nan"], "env.market.bar_seconds = nan"),
        (["sample", "--timezone", "Mars"], None),
    ],
)
def test_what_cannot_be_inspected(capsys, tmp_path, arguments, says):
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "two.csv").write_text(
        "Ticker,Date,Open,High,Low,Close,Volume\nA,2020-01-02,1,1,1,1,1\nB,2020-01-02,1,1,1,1,1\n"
    )
    # The sample is stamped with dates by its own reader: no clock is asked for.
    lines, err = inspect(capsys, *arguments, code=0 if says is None else 1)
    if says is not None:
        assert lines == []
        assert says in err
        assert err.startswith("onegraph: error: ")
        assert len(err.splitlines()) == 1
