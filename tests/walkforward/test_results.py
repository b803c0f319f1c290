"""What a finished run leaves, and how it is read back."""

import json
import shutil

import numpy as np
import pytest
from walkforward.walks import never, results, tiny, walk, write_days

from onegraph.kernels.device import HostDevice
from onegraph.stages.registry import ALL
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.evaluation import WindowEvaluator
from onegraph.trainer.page.run_folder import read_run
from onegraph.trainer.trainer import Trainer
from onegraph.trainer.walkforward.chain import hold, segments
from onegraph.trainer.walkforward.errors import WalkforwardError
from onegraph.trainer.walkforward.plan import RunId
from onegraph.trainer.walkforward.result import digest_of, read_result
from onegraph.trainer.walkforward.run import train_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """One window, two seeds."""
    folder = tmp_path_factory.mktemp("walk")
    data = write_days(folder / "days.csv", last="2020-05-01")
    root = folder / "walk"
    plan, heard = walk(tiny(data, env__market__commission=0.001), root)
    assert heard.whole
    return plan, root, heard


@pytest.fixture
def copied(walked, tmp_path):
    """The same, to be damaged."""
    plan, root, _ = walked
    return plan, shutil.copytree(root, tmp_path / "walk")


def test_a_run_is_an_ordinary_run_directory(walked):
    plan, root, heard = walked
    assert heard.done == plan.runs
    for run in plan.runs:
        folder = run.folder(root)
        assert {p.name for p in folder.iterdir()} == {
            "checkpoints",
            "config.toml",
            "metrics.jsonl",
            "result.json",
            "test-curves.npz",
        }
        assert read_run(folder).config == plan.run_config(run, root)
        assert len(read_run(folder).epochs) == 4


def test_the_result_is_that_of_the_best_checkpoint_by_validation(walked):
    plan, root, _ = walked
    for run, result in results(plan, root).items():
        record = result.record
        scores = [e.score for e in read_run(run.folder(root)).epochs]
        assert record.checkpoint.epoch == 1 + scores.index(max(scores))
        assert record.checkpoint.score == max(scores)
        best = load_checkpoint(run.folder(root) / record.checkpoint.file)
        assert record.checkpoint.digest == digest_of(best.state)
        assert record.checkpoint.learn_steps == best.progress.learns == 5 * best.progress.epoch
        assert (record.learn_steps, record.epochs, record.env_steps) == (20, 4, 108)
        # The ordinary way, from the checkpoint and its config alone.
        trainer = Trainer(best.config, HostDevice(), ALL)
        trainer.restore(best.state, best.progress)
        for part in ("validation", "test"):
            window = getattr(trainer.market.windows, part)
            evaluator = WindowEvaluator(
                trainer.programs, trainer.workspace, trainer.market, window, part
            )
            expected = {"policy": evaluator.metrics(), **evaluator.baselines()}
            assert record.figures(part) == expected
        assert record.figures("validation")["policy"].sharpe == max(scores)
        curve = result.curves["policy"]
        np.testing.assert_array_equal(curve.equity, evaluator.curve().equity)
        trainer.close()


def test_the_record_names_its_windows(walked):
    _plan, root, _ = walked
    record = json.loads((RunId(0, 1).folder(root) / "result.json").read_text())
    assert record["windows"]["test"] == {
        "first": "2020-04-01",
        "last": "2020-04-30",
        "start": 91,
        "stop": 121,
        "bars": 30,
    }
    assert record["windows"]["train"]["last"] == "2020-02-27"
    assert (record["window"], record["seed"], record["stages"]) == (0, 1, "0-8")
    assert (record["device"], record["fusion"]) == ("host (NumPy)", "none")
    assert record["test"]["flat"]["total_return"] == 0.0


def test_holding_through_the_chain_is_the_baseline_of_the_window(walked):
    plan, root, _ = walked
    expected = results(plan, root)[RunId(0, 0)].curves["buy and hold"]
    found = hold(segments(plan.windows), plan.bars, plan.config.env.market, 1.0).curve
    np.testing.assert_array_equal(found.time, expected.time)
    np.testing.assert_allclose(found.equity, expected.equity, rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("result.json", lambda p: p.write_text(p.read_text()[:99]), "this is no whole result"),
        ("result.json", lambda p: p.write_bytes(b"\xff"), "this is no whole result"),
        (
            "result.json",
            lambda p: p.write_text(p.read_text().replace("-result-1", "-result-9")),
            "its format is 'onegraph-walkforward-result-9'",
        ),
        (
            "result.json",
            lambda p: p.write_text(p.read_text().replace('"seed": 0', '"seed": 7')),
            "it is of window 0, seed 7 over bars",
        ),
        (
            "result.json",
            lambda p: p.write_text(p.read_text().replace('"sharpe"', '"shape"', 1)),
            "this is no whole result",
        ),
        ("test-curves.npz", lambda p: p.unlink(), "the file is not there"),
        ("test-curves.npz", lambda p: p.write_bytes(p.read_bytes()[:300]), "no whole curves"),
        ("test-curves.npz", lambda p: p.write_bytes(b""), "no whole curves"),
        (
            "test-curves.npz",
            lambda p: p.write_bytes(p.parent.with_name("seed-1").joinpath(p.name).read_bytes()),
            "the curves are not those that",
        ),
    ],
)
def test_a_damaged_result_is_refused_with_what_to_do(copied, name, damage, says):
    plan, root = copied
    run = RunId(0, 0)
    damage(run.folder(root) / name)
    with pytest.raises(WalkforwardError) as caught:
        read_result(root, run, plan.bars_digest)
    assert says in str(caught.value)
    assert f"remove {run.folder(root) / 'result.json'} and go on" in str(caught.value)


def test_what_a_killed_run_left_is_done_again(copied):
    plan, root = copied
    run = RunId(0, 0)
    before = read_result(root, run, plan.bars_digest).record
    folder = run.folder(root)
    # Killed before its first checkpoint to go on from: a best one, and lines of metrics.
    (folder / "result.json").unlink()
    (folder / "checkpoints" / "last.safetensors").unlink()
    shutil.copy(
        RunId(0, 1).folder(root) / "checkpoints" / "best.safetensors",
        folder / "checkpoints" / "best.safetensors",
    )
    again = train_run(plan, run, root, stop=never)
    assert len(read_run(folder).epochs) == 4
    assert again.model_copy(update={"seconds": before.seconds}) == before


def test_a_run_that_only_lacks_its_result_trains_no_more(copied):
    plan, root = copied
    run = RunId(0, 1)
    before = read_result(root, run, plan.bars_digest).record
    (run.folder(root) / "result.json").unlink()
    told = []
    assert train_run(plan, run, root, tell=lambda done, note: told.append(note)) == before
    assert told == ["testing"]
