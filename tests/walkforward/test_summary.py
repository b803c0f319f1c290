"""Spread over seeds, and the words and rows that are printed."""

import json
import math

import pytest
from walkforward.walks import summary_of, tiny, walk, write_days

from onegraph.trainer.walkforward.summary import pooling_words, spread, write_summary
from onegraph.trainer.walkforward.tables import pooled_rows, window_rows


def test_the_spread_is_that_worked_out_by_hand():
    found = spread([1.0, 2.0, 6.0])
    assert (found.mean, found.low, found.high) == (3.0, 1.0, 6.0)
    assert found.std == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert spread([2.0]).std is None


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walk")
    data = write_days(folder / "days.csv", last="2020-07-01")
    config = tiny(data, walkforward__test_months=2)
    plan, _ = walk(config, folder / "walk")
    return summary_of(plan, folder / "walk"), folder


@pytest.mark.slow
def test_the_ratios_are_of_the_chained_series(summary):
    found, _ = summary
    for seed, chained in found.chains.items():
        equity = chained.curve.equity
        returns = equity[1:] / equity[:-1] - 1
        figure = found.pooled.policies[seed]
        # April 2 to June 30: each bar once, though May lies in two tests.
        assert figure.bars == len(returns) == 90
        assert figure.total_return == pytest.approx(equity[-1] / equity[0] - 1)
        days = len(found.plan.bars)
        periods = (days - 1) * 365.25 / (days - 1)
        expected = returns.mean() / returns.std(ddof=1) * math.sqrt(periods)
        assert figure.sharpe == pytest.approx(expected, rel=1e-9)
        means = [w.policies[seed].sharpe for w in found.windows]
        assert abs(figure.sharpe - sum(means) / len(means)) > 1e-3
    assert found.pooled.baselines["flat"].total_return == 0.0


@pytest.mark.slow
def test_the_words_say_how_overlaps_are_counted(summary):
    found, _ = summary
    words = " ".join(pooling_words(found))
    assert "the 2 tests from 2020-04-01 to 2020-06-30" in words
    assert "each bar counted once" in words
    assert "a bar that several have counts for the newest window" in words
    assert "P = 365.2 bars a year" in words
    assert "between tests" not in words


@pytest.mark.slow
def test_rows_hold_policy_spread_and_baselines(summary):
    found, _ = summary
    rows = window_rows(found, 0)
    assert [row[0] for row in rows] == [
        "policy, mean of 2 seeds",
        "policy, min",
        "policy, max",
        "policy, std",
        "flat",
        "buy and hold",
    ]
    returns = [m.total_return for m in found.windows[0].policies.values()]
    assert [row[1] for row in rows[:3]] == [
        f"{value:+.2%}" for value in (sum(returns) / 2, min(returns), max(returns))
    ]
    assert rows[3][1] == f"{abs(returns[0] - returns[1]) / math.sqrt(2):.2%}"
    assert rows[4][1:4] == ["+0.00%", "0.00", "0.00"]
    assert [row[0] for row in pooled_rows(found)[:3]] == [
        "policy, seed 0",
        "policy, seed 1",
        "policy, mean of 2 seeds",
    ]


@pytest.mark.slow
def test_the_summary_is_written_for_programs_too(summary):
    found, folder = summary
    written = json.loads(write_summary(found, folder).read_text())
    assert written["seeds"] == [0, 1]
    assert len(written["windows"]) == 2
    pooled = written["pooled"]
    sharpes = [pooled["policy"][seed]["sharpe"] for seed in ("0", "1")]
    assert pooled["over_seeds"]["sharpe"]["mean"] == pytest.approx(sum(sharpes) / 2)
    assert pooled["over_seeds"]["sharpe"]["low"] == min(sharpes)
    assert set(pooled["baselines"]) == {"flat", "buy and hold"}
    assert written["windows"][1]["windows"]["test"]["last"] == "2020-06-30"
