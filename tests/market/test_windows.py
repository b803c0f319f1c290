"""Windows, against index ranges worked out by hand."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.trainer.market import MarketDataError, split, walk_forward, walk_forward_months


def daily(first, last):
    dates = np.arange(first, last, dtype="datetime64[D]")
    return dates.astype("datetime64[ns]").astype(np.int64)


TEN = daily("2020-01-01", "2020-01-11")


def ranges(windows):
    return [(w.start, w.stop) for w in (windows.train, windows.validation, windows.test)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(0, 6), (6, 8), (8, 10)]),
        ({"purge": 1}, [(0, 5), (6, 7), (8, 10)]),
        ({"embargo": 1}, [(0, 6), (7, 8), (9, 10)]),
        # The embargo keeps the next window 1 bar away already: a horizon of 1 does not reach it.
        ({"purge": 1, "embargo": 1}, [(0, 6), (7, 8), (9, 10)]),
        ({"purge": 2, "embargo": 1, "train": 0.3, "validation": 0.4, "test": 0.3},
         [(0, 2), (4, 6), (8, 10)]),
        ({"train": 0.5, "validation": 0.2, "test": 0.2}, [(0, 5), (5, 7), (7, 9)]),
        ({"first_valid": 5}, [(5, 8), (8, 9), (9, 10)]),
        ({"train": 0.7, "validation": 0.2, "test": 0.1}, [(0, 7), (7, 9), (9, 10)]),
    ],
)  # fmt: skip
def test_shares(options, expected):
    assert ranges(split(TEN, **options)) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(0, 4), (4, 6), (7, 9)]),
        # The test starts a bar after validation's end: a horizon of 1 does not reach it.
        ({"purge": 1}, [(0, 3), (4, 6), (7, 9)]),
        ({"embargo": 1}, [(0, 4), (5, 6), (7, 9)]),
        ({"first_valid": 2}, [(2, 4), (4, 6), (7, 9)]),
    ],
)
def test_dates_are_half_open(options, expected):
    windows = split(
        TEN,
        ("2019-12-01", "2020-01-05"),
        ("2020-01-05", "2020-01-07"),
        ("2020-01-08", "2020-01-10"),
        **options,
    )
    assert ranges(windows) == expected


@pytest.mark.parametrize(
    ("extents", "options", "says"),
    [
        ((0.98, 0.01, 0.01), {}, ["validation window", "0.01 of 10", "no bars"]),
        ((0.6, 0.2, 0.2), {"purge": 6}, ["train window", "6 bars", "purge 6", "lower purge"]),
        ((0.6, 0.2, 0.2), {"embargo": 2}, ["validation window", "embargo 2"]),
        ((0.6, 0.2, 0.2), {"embargo": 20}, ["validation window", "embargo 20"]),
        ((0.6, 0.3, 0.2), {}, ["test window", "sum to more than 1"]),
        ((0.0, 0.3, 0.2), {}, ["train window", "0.0", "above 0"]),
        ((0.6, float("nan"), 0.2), {}, ["validation window", "nan"]),
        ((0.6, 0.2, ("2020-01-09", "2020-01-10")), {}, ["mixed", "three shares"]),
        ((0.6, 0.2, 0.2), {"purge": -1}, ["purge", "-1"]),
        ((0.6, 0.2, 0.2), {"embargo": -1}, ["embargo", "-1"]),
        ((0.6, 0.2, 0.2), {"first_valid": 10}, ["first_valid is 10", "10 bars"]),
        (
            (
                ("2020-01-01", "2020-01-05"),
                ("2020-01-05", "2020-01-07"),
                ("2021-01-01", "2021-02-01"),
            ),
            {},
            ["test window", "[2021-01-01, 2021-02-01)", "no bars", "give more bars"],
        ),
        (
            (
                ("2020-01-01", "2020-01-05"),
                ("2020-01-04", "2020-01-07"),
                ("2020-01-07", "2020-01-09"),
            ),
            {},
            ["validation window", "starts within"],
        ),
        (
            (
                ("2020-01-05", "2020-01-01"),
                ("2020-01-05", "2020-01-07"),
                ("2020-01-07", "2020-01-09"),
            ),
            {},
            ["train window", "ends before"],
        ),
        (
            (("soon", "2020-01-01"), ("2020-01-05", "2020-01-07"), ("2020-01-07", "2020-01-09")),
            {},
            ["train window", "'soon'", "2005-02-28"],
        ),
    ],
)
def test_windows_that_are_refused(extents, options, says):
    with pytest.raises(MarketDataError) as caught:
        split(TEN, *extents, **options)
    for part in says:
        assert part in str(caught.value)


def test_walk_forward_by_months():
    # 2020: January 31 days, February 29, March 31, April 30, May 31.
    found = walk_forward(daily("2020-01-01", "2020-06-01"), 2, 1, 1, 1)
    assert [ranges(windows) for windows in found] == [
        [(0, 60), (60, 91), (91, 121)],
        [(31, 91), (91, 121), (121, 152)],
    ]


def test_walk_forward_with_purge_embargo_and_missing_history():
    found = walk_forward(
        daily("2020-01-01", "2020-05-11"), 2, 1, 1, 2, purge=3, embargo=2, first_valid=20
    )
    # Validation starts 2 bars late and the horizon of 3 reaches 1 bar further back than that.
    assert [ranges(windows) for windows in found] == [[(20, 59), (62, 90), (93, 121)]]


def test_walk_forward_gives_midnight_of_the_first_to_the_new_month():
    hours = np.arange("2020-01-31T22", "2020-04-01T02", dtype="datetime64[h]")
    time = hours.astype("datetime64[ns]").astype(np.int64)
    windows = walk_forward(time, 1, 1, 1, 1)[0]
    assert ranges(windows)[0] == (0, 2)
    assert str(hours[windows.validation.start]) == "2020-02-01T00"


def test_the_months_of_a_walk_are_dates_that_split_takes():
    time = daily("2019-11-20", "2020-05-11")
    options = {"purge": 3, "embargo": 2, "first_valid": 20}
    months = walk_forward_months(time, 2, 1, 1, 1, first_valid=20)
    # Bar 20 lies in December; the walk ends with the May that is not over.
    assert months == [
        (dt.date(2019, 12, 1), dt.date(2020, 2, 1), dt.date(2020, 3, 1), dt.date(2020, 4, 1)),
        (dt.date(2020, 1, 1), dt.date(2020, 3, 1), dt.date(2020, 4, 1), dt.date(2020, 5, 1)),
        (dt.date(2020, 2, 1), dt.date(2020, 4, 1), dt.date(2020, 5, 1), dt.date(2020, 6, 1)),
    ]
    walked = walk_forward(time, 2, 1, 1, 1, **options)
    for days, windows in zip(months, walked, strict=True):
        dates = [day.isoformat() for day in days]
        pairs = [(dates[i], dates[i + 1]) for i in range(3)]
        assert split(time, *pairs, **options) == windows


@pytest.mark.parametrize(
    ("lengths", "time", "says"),
    [
        ((6, 1, 1, 1), TEN, ["8 months", "2020-01 to 2020-01 are 1", "Shorten"]),
        ((0, 1, 1, 1), TEN, ["train_months", "0"]),
        ((1, 1, 1, 0), TEN, ["step_months", "0"]),
        (
            (1, 1, 1, 1),
            np.concatenate([TEN, daily("2020-03-01", "2020-04-01")]),
            ["validation window", "[2020-02, 2020-03)", "no bars"],
        ),
    ],
)
def test_walks_that_are_refused(lengths, time, says):
    with pytest.raises(MarketDataError) as caught:
        walk_forward(time, *lengths)
    for part in says:
        assert part in str(caught.value)


@given(
    bars=st.integers(30, 300),
    purge=st.integers(0, 4),
    embargo=st.integers(0, 4),
    first_valid=st.integers(0, 10),
)
def test_no_sample_reaches_the_next_window(bars, purge, embargo, first_valid):
    time = daily("2020-01-01", "2021-01-01")[:bars]
    whole = split(time, 0.5, 0.25, 0.25, first_valid=first_valid)
    cut = split(time, 0.5, 0.25, 0.25, purge=purge, embargo=embargo, first_valid=first_valid)
    assert cut.train.start == first_valid
    assert cut.test.stop == bars
    for before, after, given_end in (
        (cut.train, cut.validation, whole.train.stop),
        (cut.validation, cut.test, whole.validation.stop),
    ):
        assert before.stop - 1 + purge < after.start
        assert after.start == given_end + embargo


def test_describe_names_the_bars():
    assert split(TEN).describe(TEN) == (
        "train 2020-01-01 to 2020-01-06 (6 bars), validation 2020-01-07 to 2020-01-08 (2 bars), "
        "test 2020-01-09 to 2020-01-10 (2 bars)"
    )
