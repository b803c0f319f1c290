"""What a walk-forward will do: its windows by hand, its runs' configs, and what is refused."""

import datetime as dt
import json

import pytest
from walkforward import walks
from walkforward.walks import write_days

from onegraph.trainer.config import config_from_json, config_to_json
from onegraph.trainer.envs.build import build_market
from onegraph.trainer.market import MarketDataError
from onegraph.trainer.walkforward.errors import WalkforwardError
from onegraph.trainer.walkforward.plan import RunId, load_plan, make_plan, save_plan
from onegraph.trainer.walkforward.tables import plan_rows


def tiny(data, **changes):
    """Two windows of five months over seven."""
    return walks.tiny(
        data, **{"walkforward__test_months": 2, "walkforward__step_months": 2, **changes}
    )


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    return write_days(tmp_path_factory.mktemp("bars") / "days.csv", last="2020-08-01")


def test_the_windows_are_those_worked_out_by_hand(days):
    # January 31 days, February 29, March 31, April 30, May 31, June 30, July 31; the first day with
    # every feature is the 21st; two days are purged before validation and before the test.
    plan = make_plan(tiny(days))
    assert plan_rows(plan) == [
        [
            "0",
            *("2020-01-21 to 2020-02-27", "38"),
            *("2020-03-01 to 2020-03-29", "29"),
            *("2020-04-01 to 2020-05-31", "61"),
        ],
        [
            "1",
            *("2020-03-01 to 2020-04-28", "59"),
            *("2020-05-01 to 2020-05-29", "29"),
            *("2020-06-01 to 2020-07-31", "61"),
        ],
    ]
    assert plan.runs == [RunId(0, 0), RunId(0, 1), RunId(1, 0), RunId(1, 1)]
    assert (plan.overlap(), plan.gap_bars()) == (False, 0)


@pytest.mark.parametrize(
    ("step", "embargo", "windows", "overlap", "gap"),
    [(1, 0, 3, True, 0), (2, 0, 2, False, 0), (2, 3, 2, False, 3)],
)
def test_overlaps_and_gaps_are_seen(days, step, embargo, windows, overlap, gap):
    plan = make_plan(tiny(days, walkforward__step_months=step, env__market__embargo_bars=embargo))
    assert len(plan.windows) == windows
    assert (plan.overlap(), plan.gap_bars()) == (overlap, gap)


def test_a_run_has_an_ordinary_config_with_the_plans_windows(days, tmp_path):
    plan = make_plan(tiny(days, env__market__embargo_bars=1))
    for run in plan.runs:
        config = plan.run_config(run, tmp_path)
        assert config.seed == run.seed
        assert config.run_dir == f"{tmp_path}/window-{run.window:03}/seed-{run.seed}"
        assert build_market(config).windows == plan.windows[run.window]
        assert config_from_json(config_to_json(config), "x") == config
    market = plan.run_config(RunId(1, 0), tmp_path).env.market
    assert (market.train_start, market.train_end, market.validation_end, market.test_end) == (
        dt.date(2020, 3, 1),
        dt.date(2020, 5, 1),
        dt.date(2020, 6, 1),
        dt.date(2020, 8, 1),
    )


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"env__kind": "chain"}, WalkforwardError, "env.kind = 'chain' has no bars to walk over"),
        (
            {
                "env__market__train_end": dt.date(2020, 3, 1),
                "env__market__validation_end": dt.date(2020, 4, 1),
            },
            WalkforwardError,
            "env.market.train_end = 2020-03-01 is of a single run",
        ),
        (
            {"walkforward__train_months": 6},
            MarketDataError,
            "9 months are asked for, 2020-01 to 2020-07 are 7. Shorten the windows",
        ),
        ({"env__market__purge_bars": 40}, MarketDataError, "train window: [2020-01, 2020-03)"),
        ({"env__market__purge_bars": 30}, WalkforwardError, "its validation window has one bar"),
        ({"env__market__data": "absent.csv"}, MarketDataError, "absent.csv"),
    ],
)
def test_what_can_not_be_walked_is_refused_before_anything_trains(days, changes, error, says):
    values = {"env__market__data": str(days)} | changes
    with pytest.raises(error) as caught:
        make_plan(tiny(values.pop("env__market__data"), **values))
    assert says in str(caught.value)


def test_a_plan_is_read_back(days, tmp_path):
    plan = make_plan(tiny(days))
    save_plan(plan, tmp_path)
    again = load_plan(tmp_path)
    assert (again.config, again.windows, again.months) == (plan.config, plan.windows, plan.months)
    assert again.bars_digest == plan.bars_digest
    more = load_plan(tmp_path, {"walkforward.seeds": 3, "walkforward.workers": 2})
    assert more.runs[:3] == [RunId(0, 0), RunId(0, 1), RunId(0, 2)]


def test_a_plan_that_is_not_that_of_its_folder_is_refused(tmp_path):
    data = write_days(tmp_path / "days.csv", last="2020-08-01")
    root = tmp_path / "walk"

    def refusal(overrides=None):
        with pytest.raises(WalkforwardError) as caught:
            load_plan(root, overrides)
        return str(caught.value)

    assert "holds no walkforward.json" in refusal()
    save_plan(make_plan(tiny(data)), root)
    assert "--set learn.gamma with --resume" in refusal({"learn.gamma": 0.5})
    write_days(
        data, last="2020-08-01", change=lambda days, prices: prices * (1 + (days == days[-1]))
    )
    assert "the bars are not those that" in refusal()
    write_days(data, last="2020-08-01")
    path = root / "walkforward.json"
    written = json.loads(path.read_text())
    written["windows"][0]["test"]["bars"] = 1
    path.write_text(json.dumps(written))
    assert "its windows are not those" in refusal()
    path.write_text(path.read_text()[:50])
    assert "this is no plan of a walk-forward" in refusal()
    path.write_text('{"format": "another"}')
    assert "this is no plan of a walk-forward" in refusal()
    path.write_text("[]")
    assert "this is no plan of a walk-forward" in refusal()
