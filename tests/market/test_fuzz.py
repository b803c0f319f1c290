"""Files with anything in them: they are read, or refused in one way that names them."""

import numpy as np
import pytest
from dbn_file import header, packed, record
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onegraph.trainer.market import MarketDataError, adjust_by_table, read_adjustments, read_bars

CSV = b"""Date,Open,High,Low,Close,Volume,Adj Close
2020-01-02 10:00,10,12,9,11,100,11
2020-01-02 11:00,11,13,10,12,200,12
2020-01-02 12:00,12,14,11,13,0,13
"""
PIECES = [
    b"", b",", b";", b"\n", b"\r", b'"', b"\x00", b"\xff", b"nan", b"-", b"1e308", b"5e-324", b"e",
    b"0", b"9" * 400, b"2261-12-31", b"1678-01-01", b"1/2/2020", b"13/2/2020", b"31.12.2020", b":",
    b"Z", b"+99:99", b"+23:59", b"24:00", b".", b"_", b" ", "١".encode(), b"Ticker", b"Date",
]  # fmt: skip
PLACE = st.tuples(st.integers(0, 400), st.integers(0, 30), st.sampled_from(PIECES))
OPTIONS = st.fixed_dictionaries(
    {
        "timezone": st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu"]),
        "bar_stamp": st.sampled_from(["start", "end"]),
        "bar_seconds": st.sampled_from([None, 60.0, 3600.0]),
        "adjust": st.booleans(),
        "date_order": st.sampled_from(["month-first", "day-first"]),
    }
)


def spoilt(data, places):
    """`data` with some of its bytes replaced."""
    for at, length, piece in places:
        at %= len(data) + 1
        data = data[:at] + piece + data[at + length :]
    return data


def outcome(path, **options):
    try:
        bars = read_bars(path, **options)
    except MarketDataError as error:
        text = str(error)
        # Prices that only their adjustment makes impossible are found in the bars it gives.
        assert str(path) in text or text.startswith(("timezone", "x, bar"))
        assert len(text) < 2000
        return None
    assert (np.diff(bars.time) > 0).all()
    assert np.isfinite(bars.close).all()
    return bars


@settings(max_examples=150, deadline=None)
@given(places=st.lists(PLACE, min_size=1, max_size=4), options=OPTIONS)
@example(places=[(50, 10, b"2261-12-31")], options={"bar_stamp": "start", "bar_seconds": 31e6})
def test_a_spoilt_csv(tmp_path_factory, places, options):
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(spoilt(CSV, places))
    outcome(path, **options)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200), start=st.sampled_from([b"", b"\x1f\x8b", b"PAR1", b"DBN\x03"]))
def test_any_bytes(tmp_path_factory, data, start):
    path = tmp_path_factory.mktemp("bytes") / "x"
    path.write_bytes(start + data)
    assert outcome(path) is None


@settings(max_examples=60, deadline=None)
@given(places=st.lists(PLACE, min_size=1, max_size=3))
def test_a_spoilt_table(tmp_path_factory, places):
    folder = tmp_path_factory.mktemp("table")
    (folder / "x.csv").write_bytes(CSV)
    bars = read_bars(folder / "x.csv", adjust=False)
    (folder / "splits.csv").write_bytes(
        spoilt(b"date,ratio\n2020-01-02T11:00,0.5\n2020-01-02T12:00,2\n", places)
    )
    refusal = str(folder)
    try:
        adjust_by_table(bars, read_adjustments(folder / "splits.csv"))
    except MarketDataError as error:
        refusal = str(error)
    assert str(folder) in refusal


@pytest.fixture(scope="module")
def whole():
    dbn = pytest.importorskip("databento_dbn")
    mappings = [("ES.c.0", "2024-01-01", "2025-01-01", 17)]
    bars = [
        record(dbn, "ohlcv-1m", 17, f"2024-01-02T14:3{i}", (1.0, 2.0, 1.0, 1.5)) for i in range(4)
    ]
    data = header(dbn, "ohlcv-1m", mappings) + b"".join(bars)
    return data, packed(dbn, data)


@settings(max_examples=150, deadline=None)
@given(
    at=st.integers(0, 999), value=st.integers(0, 255), cut=st.integers(0, 60), pack=st.booleans()
)
def test_spoilt_dbn(tmp_path_factory, whole, at, value, cut, pack):
    data = bytearray(whole[pack])
    data[at % len(data)] = value
    path = tmp_path_factory.mktemp("dbn") / "x.dbn"
    path.write_bytes(bytes(data[: len(data) - cut // 2]))
    outcome(path)
