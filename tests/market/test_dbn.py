"""Databento files: what the numbers in them mean, and what is refused."""

import sys

import pytest
from dbn_file import UNDEFINED, header, ns, packed, record

from onegraph.trainer.market import MarketDataError, adjust_by_table, read_bars
from onegraph.trainer.market.zstdframe import ends_whole

dbn = pytest.importorskip("databento_dbn")

YEAR = [("ES.c.0", "2024-01-01", "2025-01-01", 17)]
MINUTE = "ohlcv-1m"


def minutes(*bars, schema=MINUTE):
    """Records of instrument 17, or of the one that a bar's fourth item names."""
    return b"".join(
        record(dbn, schema, at[3] if len(at) > 3 else 17, *at[:2], volume=at[2] if at[2:] else 5)
        for at in bars
    )


GOOD = (
    ("2024-01-02T14:30", (4745.25, 4746.0, 4744.5, 4745.75), 812),
    ("2024-01-02T14:31", (4745.75, 4746.25, 4745.5, 4746.25), 0),
    ("2024-01-02T14:33", (4746.25, 4746.5, 4746.0, 4746.0), 97),
)


def write(folder, data, name="x.dbn"):
    path = folder / name
    path.write_bytes(data)
    return path


def test_minutes_of_a_continuous_symbol(tmp_path):
    bars = read_bars(write(tmp_path, header(dbn, MINUTE, YEAR) + minutes(*GOOD)))
    assert (bars.source.layout, bars.source.symbols) == ("Databento DBN, ohlcv-1m", ("ES.c.0",))
    assert (bars.symbol, bars.intraday, bars.source.dates, bars.adjusted) == (
        "ES.c.0",
        True,
        False,
        False,
    )
    # Stamped with their ends: a minute after ts_event.
    ends = ["2024-01-02T14:31", "2024-01-02T14:32", "2024-01-02T14:34"]
    assert bars.time.tolist() == [ns(end) for end in ends]
    assert bars.open.tolist() == [4745.25, 4745.75, 4746.25]
    assert bars.high.tolist() == [4746.0, 4746.25, 4746.5]
    assert bars.low.tolist() == [4744.5, 4745.5, 4746.0]
    assert bars.close.tolist() == [4745.75, 4746.25, 4746.0]
    assert bars.volume.tolist() == [812, 0, 97]
    assert (bars.zero_volume_bars, bars.notes) == (1, ())


def test_a_minute_without_a_trade_stays_absent(tmp_path):
    bars = (*GOOD, ("2024-01-02T14:34", GOOD[2][1]))
    read = read_bars(write(tmp_path, header(dbn, MINUTE, YEAR) + minutes(*bars)))
    assert (len(read), read.gaps) == (4, 1)


@pytest.mark.parametrize(("schema", "seconds"), [("ohlcv-1s", 1), (MINUTE, 60), ("ohlcv-1h", 3600)])
def test_a_bar_ends_its_length_after_it_starts_even_alone(tmp_path, schema, seconds):
    bars = read_bars(write(tmp_path, header(dbn, schema, YEAR) + minutes(GOOD[0], schema=schema)))
    assert bars.time.tolist() == [ns("2024-01-02T14:30") + seconds * 10**9]


def test_days_are_dates(tmp_path):
    days = [(day, *GOOD[0][1:]) for day in ("2024-01-05", "2024-01-08")]
    data = header(dbn, "ohlcv-1d", YEAR) + minutes(*days, schema="ohlcv-1d")
    bars = read_bars(write(tmp_path, data))
    assert bars.source.dates
    assert not bars.intraday
    assert bars.time.tolist() == [ns("2024-01-05"), ns("2024-01-08")]
    assert bars.gaps == 0


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("pack", [False, True])
def test_versions_and_compression_read_alike(tmp_path, version, pack):
    plain = read_bars(write(tmp_path, header(dbn, MINUTE, YEAR) + minutes(*GOOD)))
    data = header(dbn, MINUTE, YEAR, version=version) + minutes(*GOOD)
    name = "x.dbn.zst" if pack else "x.dbn"
    bars = read_bars(write(tmp_path, packed(dbn, data) if pack else data, name))
    assert bars.source.layout.endswith(", zstd") is pack
    for column in ("time", "open", "high", "low", "close", "volume"):
        assert getattr(bars, column).tobytes() == getattr(plain, column).tobytes()


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("piece", [1, 7, 57])
def test_a_file_is_decoded_in_pieces(tmp_path, monkeypatch, piece, pack):
    data = header(dbn, MINUTE, YEAR) + minutes(*GOOD)
    path = write(tmp_path, packed(dbn, data) if pack else data)
    whole = read_bars(path)
    monkeypatch.setattr("onegraph.trainer.market.dbnfile._PIECE", piece)
    bars = read_bars(path)
    for column in ("time", "open", "high", "low", "close", "volume"):
        assert getattr(bars, column).tobytes() == getattr(whole, column).tobytes()
    path.write_bytes(data[:-1])
    with pytest.raises(MarketDataError, match="record 2: it is cut off: 55 bytes"):
        read_bars(path)


TWO = [("ESH4", "2024-01-01", "2024-02-01", 17), ("NQH4", "2024-01-01", "2024-02-01", 18)]
MIXED = (
    ("2024-01-02T14:30", (4745.0, 4746.0, 4744.0, 4745.0), 1, 17),
    ("2024-01-02T14:30", (16700.0, 16710.0, 16690.0, 16705.0), 1, 18),
    ("2024-01-02T14:31", (4745.0, 4747.0, 4744.0, 4746.0), 1, 17),
)


@pytest.mark.parametrize("by_number", [False, True])
def test_symbols_are_told_apart(tmp_path, by_number):
    data = header(dbn, MINUTE, TWO, by_number=by_number) + minutes(*MIXED)
    path = write(tmp_path, data)
    assert read_bars(path, "NQH4").source.symbols == ("ESH4", "NQH4")
    assert read_bars(path, "ESH4").close.tolist() == [4745, 4746]
    assert read_bars(path, "NQH4").close.tolist() == [16705]
    for symbol in (None, "ES"):
        with pytest.raises(MarketDataError, match="ESH4, NQH4"):
            read_bars(path, symbol)


def test_an_instrument_without_a_mapping_goes_by_its_number(tmp_path):
    short = [("ESH4", "2024-01-01", "2024-01-02", 17)]  # half-open: not on the 2nd
    assert read_bars(write(tmp_path, header(dbn, MINUTE, short) + minutes(*GOOD))).symbol == "17"
    assert read_bars(write(tmp_path, header(dbn, MINUTE, []) + minutes(*GOOD)), "17").symbol == "17"


ROLL = [("ES.c.0", "2024-01-01", "2024-03-18", 17), ("ES.c.0", "2024-03-18", "2025-01-01", 18)]
ROLLED = (
    ("2024-03-14", (5200.0, 5210.0, 5190.0, 5200.0), 1, 17),
    ("2024-03-15", (5200.0, 5210.0, 5190.0, 5200.0), 1, 17),
    ("2024-03-18", (5252.0, 5260.0, 5250.0, 5255.0), 1, 18),
)


def test_a_roll_is_flagged_and_a_table_takes_it_out(tmp_path):
    schema = "ohlcv-1d"
    path = write(tmp_path, header(dbn, schema, ROLL) + minutes(*ROLLED, schema=schema))
    bars = read_bars(path)
    assert bars.close.tolist() == [5200, 5200, 5255]  # as traded
    assert bars.notes == (
        "2024-03-18: ES.c.0 rolls from instrument 17 to 18; as traded it opens at 1.01 times the "
        "close before it",
    )
    adjusted = adjust_by_table(bars, [("2024-03-18", 1.01)])
    assert adjusted.close.tolist() == [5252, 5252, 5255]


def test_many_rolls_are_counted(tmp_path):
    days = [f"2024-01-{day:02}" for day in range(1, 13)]
    table = [("ES.c.0", day, f"2024-01-{i + 2:02}", i + 1) for i, day in enumerate(days)]
    bars = [(day, GOOD[0][1], 1, i + 1) for i, day in enumerate(days)]
    data = header(dbn, "ohlcv-1d", table) + minutes(*bars, schema="ohlcv-1d")
    notes = read_bars(write(tmp_path, data)).notes
    assert len(notes) == 9
    assert notes[-1] == "3 more rolls like these"


def changed(bar, field, value):
    prices = list(GOOD[bar][1])
    prices[("open", "high", "low", "close").index(field)] = value
    return [(at, tuple(prices) if i == bar else p, v) for i, (at, p, v) in enumerate(GOOD)]


@pytest.mark.parametrize(
    ("records", "says"),
    [
        pytest.param(changed(1, "close", UNDEFINED),
                     ["record 2", "close is undefined (2^63 - 1)", "nothing is filled"],
                     id="undefined"),
        pytest.param(changed(2, "high", 4000.0), ["record 3", "high 4000.0 is below low 4746.0"],
                     id="high below low"),
        pytest.param(changed(0, "open", 0), ["record 1", "open is 0.0"], id="zero"),
        pytest.param(changed(0, "close", 0), ["record 1", "close is 0.0"], id="zero close"),
        pytest.param(changed(2, "low", -5.0), ["record 3", "low is -5.0"], id="below 0"),
        pytest.param([GOOD[0], GOOD[0]], ["record 2", "repeats", "record 1"], id="repeated"),
        pytest.param([GOOD[0], GOOD[2], GOOD[1]], ["record 3", "is before", "record 2"],
                     id="unsorted"),
        pytest.param([], ["no records"], id="empty"),
    ],
)  # fmt: skip
def test_records_that_are_refused(tmp_path, records, says):
    path = write(tmp_path, header(dbn, MINUTE, YEAR) + minutes(*records))
    with pytest.raises(MarketDataError) as caught:
        read_bars(path)
    assert str(caught.value).startswith(str(path))
    for part in says:
        assert part in str(caught.value)


def test_records_are_counted_over_all_symbols(tmp_path):
    bars = [*MIXED[:2], ("2024-01-02T14:31", (1.0, 1.0, 2.0, 1.0), 1, 18)]
    path = write(tmp_path, header(dbn, MINUTE, TWO) + minutes(*bars))
    with pytest.raises(MarketDataError, match="record 3: high"):
        read_bars(path, "NQH4")


def trade():
    action, side = dbn.Action.TRADE, dbn.Side.ASK
    return bytes(
        dbn.TradeMsg(publisher_id=1, instrument_id=17, ts_event=0, price=10**9, size=1,
                     action=action, side=side, depth=0, ts_recv=0)
    )  # fmt: skip


HEAD = header(dbn, MINUTE, YEAR)
WHOLE = packed(dbn, HEAD + minutes(*GOOD))


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        pytest.param(header(dbn, "ohlcv-eod", YEAR) + minutes(GOOD[0], schema="ohlcv-eod"), {},
                     ["schema is ohlcv-eod", "ohlcv-1s"], id="other schema"),
        pytest.param(header(dbn, MINUTE, YEAR, live=True) + minutes(*GOOD), {},
                     ["not stated", "live"], id="live"),
        pytest.param(HEAD + minutes(GOOD[0]) + trade(), {},
                     ["record 2", "TradeMsg stands among the bars"], id="a trade"),
        pytest.param(HEAD + minutes(*GOOD)[:-9], {},
                     ["record 2", "cut off: 47 bytes", "again"], id="cut"),
        pytest.param(HEAD[:40], {}, ["ends before its metadata"], id="cut in the metadata"),
        pytest.param(b"DBN\x63" + HEAD[4:], {}, ["not DBN that can be read"], id="version 99"),
        pytest.param(b"DBN", {}, ["ends before its metadata"], id="magic alone"),
        pytest.param(b"", {}, ["named like a DBN file", "b''"], id="empty"),
        pytest.param(b"Date,Open", {}, ["named like a DBN file", "b'Date'"], id="text"),
        pytest.param(WHOLE[:-1], {}, ["zstd data are cut off"], id="zstd without its end"),
        pytest.param(WHOLE[: len(WHOLE) // 2], {}, ["zstd data are cut off"], id="half of a zstd"),
        pytest.param(WHOLE + b"more", {}, ["zstd data are cut off or broken"], id="more than zstd"),
        pytest.param(packed(dbn, HEAD)[:4] + b"\x00" * 60, {}, ["broken"], id="no frame"),
        pytest.param(HEAD + minutes(*GOOD), {"timezone": "America/Chicago"},
                     ["UTC", "America/Chicago"], id="another clock"),
        pytest.param(HEAD + minutes(*GOOD), {"bar_seconds": 300},
                     ["60 s long", "bar_seconds is 300"], id="another length"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, data, options, says):
    path = write(tmp_path, data)
    with pytest.raises(MarketDataError) as caught:
        read_bars(path, **options)
    assert str(caught.value).startswith(str(path))
    for part in says:
        assert part in str(caught.value)


def test_a_time_that_is_undefined(tmp_path):
    bar = bytearray(minutes(GOOD[0]))
    bar[8:16] = b"\xff" * 8
    path = write(tmp_path, HEAD + bytes(bar))
    with pytest.raises(MarketDataError, match="record 1: ts_event is 18446744073709551615"):
        read_bars(path)


def test_what_is_declared_and_true_is_fine(tmp_path):
    path = write(tmp_path, HEAD + minutes(*GOOD))
    one, two = read_bars(path), read_bars(path, bar_stamp="start", bar_seconds=60)
    assert one.time.tobytes() == two.time.tobytes()


@pytest.mark.parametrize("cut", range(1, 20))
def test_the_end_of_a_frame_is_found(cut):
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    # A frame of two bytes: no checksum, a window, one raw block, the last.
    tiny = b"\x28\xb5\x2f\xfd\x00\x58\x11\x00\x00ok"
    repeated = b"\x28\xb5\x2f\xfd\x20\x05\x2b\x00\x00x"  # "x" five times, one block
    for whole in (WHOLE, tiny, repeated, skippable + tiny, tiny + skippable, WHOLE + repeated):
        assert ends_whole(whole)
        if cut < len(whole):
            assert not ends_whole(whole[:-cut]) or whole[:-cut] in (tiny, skippable, WHOLE)
    assert not ends_whole(b"")


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    path = write(tmp_path, HEAD + minutes(*GOOD))
    monkeypatch.setitem(sys.modules, "databento_dbn", None)
    with pytest.raises(MarketDataError, match=r"onegraph\[dbn\]"):
        read_bars(path)
