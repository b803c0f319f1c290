"""No bar of a test is read by what trains or selects."""

import numpy as np
import pytest
from walkforward.walks import results, tiny, walk, write_days

from onegraph.trainer.envs.build import build_market
from onegraph.trainer.market import Normaliser, compute_features
from onegraph.trainer.walkforward.plan import make_plan

pytestmark = pytest.mark.slow


@pytest.fixture
def short(tmp_path):
    """One window whose test begins with April, and the bars' file."""
    data = write_days(tmp_path / "days.csv", last="2020-05-01")
    return tiny(data, walkforward__seeds=1), data, tmp_path


def test_no_test_bar_moves_the_checkpoint_that_is_selected(short):
    config, data, folder = short
    begins = np.datetime64("2020-04-01")

    def test_turned(days, prices):
        return np.where(days >= begins, 3 * prices[::-1], prices)

    def digest(root):
        plan, _ = walk(config, root)
        ((_, result),) = results(plan, root).items()
        assert result.record.windows["test"]["first"] == "2020-04-01"
        return result.record

    as_it_was = digest(folder / "before")
    write_days(data, last="2020-05-01", change=test_turned)
    turned = digest(folder / "after")
    assert turned.bars_digest != as_it_was.bars_digest
    assert turned.checkpoint == as_it_was.checkpoint
    assert turned.validation == as_it_was.validation
    assert turned.test != as_it_was.test

    # The same change a day before validation ends is seen, so that the test above says something.
    def validation_turned(days, prices):
        return np.where(days >= np.datetime64("2020-03-02"), 3 * prices[::-1], prices)

    write_days(data, last="2020-05-01", change=validation_turned)
    assert digest(folder / "seen").validation != as_it_was.validation


def test_each_window_is_normalised_by_its_own_training_bars(tmp_path):
    plan = make_plan(tiny(write_days(tmp_path / "days.csv")))
    raw = compute_features(plan.bars)
    seen = []
    for run in plan.runs[::2]:
        market = build_market(plan.run_config(run, tmp_path))
        train = plan.windows[run.window].train
        expected = Normaliser.fit(raw, train).apply(raw)
        np.testing.assert_array_equal(market.environment.features, expected)
        assert np.abs(market.environment.features[train].mean(axis=0)).max() < 0.05
        seen.append(market.environment.features)
    assert not np.array_equal(*seen, equal_nan=True)
