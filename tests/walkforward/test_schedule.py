"""One by one, side by side, stopped and gone on with: the same numbers."""

import os
import signal

import pytest
from walkforward.walks import Heard, kept, never, tiny, walk, write_days

from onegraph.trainer.config import override_config
from onegraph.trainer.trainer import TrainerError
from onegraph.trainer.walkforward import schedule
from onegraph.trainer.walkforward.errors import WalkforwardError
from onegraph.trainer.walkforward.plan import RunId, save_plan
from onegraph.trainer.walkforward.run import train_run
from onegraph.trainer.walkforward.schedule import in_processes, one_by_one, worker_environment


def after(checks):
    """A `stop` that says yes at its `checks`-th question, and from then on."""
    asked = iter(range(10**9))
    return lambda: next(asked) >= checks


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The walk-forward, one by one and undisturbed."""
    folder = tmp_path_factory.mktemp("walk")
    config = tiny(write_days(folder / "days.csv"))
    plan, heard = walk(config, folder / "straight")
    return config, plan, kept(folder / "straight"), heard


def of_seed(found, seed):
    """What is of one seed."""
    return {name: r for name, r in found.items() if r["seed"] == seed}


@pytest.mark.slow
def test_each_run_is_told_of_in_turn(straight):
    _, plan, found, heard = straight
    assert heard.done == plan.runs
    assert list(heard.shares) == plan.runs
    for shares in heard.shares.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
    assert len({record["checkpoint"]["digest"] for record in found.values()}) == 4


@pytest.mark.slow
def test_side_by_side_is_as_one_by_one(straight, tmp_path):
    _config, plan, expected, _ = straight
    save_plan(plan, tmp_path)
    heard = Heard()
    assert in_processes(tmp_path, plan.runs, 2, (), heard, never)
    assert heard.failures == {}
    assert sorted(map(str, heard.done)) == sorted(map(str, plan.runs))
    assert kept(tmp_path) == expected
    assert list(tmp_path.rglob("worker.log")) == []


@pytest.mark.slow
@pytest.mark.parametrize("checks", [3, 20, 45])
def test_stopped_and_gone_on_with_is_as_undisturbed(straight, tmp_path, checks):
    config, _plan, everything, _ = straight
    config = override_config(config, {"walkforward.seeds": [1]}, "test")
    expected = of_seed(everything, 1)
    _, heard = walk(config, tmp_path, stop=after(checks))
    assert not heard.whole
    done = kept(tmp_path)
    assert len(done) == (checks == 45)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    _, again = walk(config, tmp_path)
    assert again.whole
    assert len(again.done) == 2 - len(done)
    assert kept(tmp_path) == expected
    for path, stamp in stamps.items():
        assert path.stat().st_mtime_ns == stamp, "what is finished is left alone"


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_end(straight, tmp_path, monkeypatch):
    config, _plan, everything, _ = straight
    config = override_config(config, {"walkforward.seeds": [1]}, "test")

    def train(plan, run, root, **options):
        if run == RunId(0, 1):
            raise TrainerError("the replay\ndoes not fit")
        return train_run(plan, run, root, **options)

    monkeypatch.setattr(schedule, "train_run", train)
    _, heard = walk(config, tmp_path, expected=(TrainerError,))
    assert heard.failures == {RunId(0, 1): "the replay does not fit"}
    assert heard.done == [RunId(1, 1)]
    monkeypatch.undo()
    _, again = walk(config, tmp_path)
    assert again.done == [RunId(0, 1)]
    assert kept(tmp_path) == of_seed(everything, 1)


@pytest.mark.slow
def test_memory_that_is_short_ends_one_run(straight, tmp_path, monkeypatch):
    _config, plan, *_ = straight

    def train(*_, **__):
        raise MemoryError("80 GiB")

    monkeypatch.setattr(schedule, "train_run", train)
    heard = Heard()
    assert one_by_one(plan, tmp_path, plan.runs[:1], heard, never, ())
    assert "out of host memory (80 GiB); lower replay" in heard.failures[RunId(0, 0)]


@pytest.mark.slow
def test_a_worker_says_why_it_failed(straight, tmp_path):
    _config, plan, *_ = straight
    save_plan(plan, tmp_path)
    broken = RunId(1, 0).folder(tmp_path) / "checkpoints" / "last.safetensors"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no checkpoint")
    heard = Heard()
    assert in_processes(tmp_path, [RunId(1, 0)], 1, (), heard, never)
    assert heard.done == []
    assert f"{broken}: this is no whole checkpoint" in heard.failures[RunId(1, 0)]


# ---------------------------------------------------------------- workers that are no trainers


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Makes the workers run a few lines of Python in place of the trainer."""

    def use(code):
        (tmp_path / "stand_in_worker.py").write_text(code)
        monkeypatch.setattr(schedule, "WORKER", "stand_in_worker")
        before = os.environ.get("PYTHONPATH", "")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{before}")

    return use


def run_stand_ins(root, runs, workers=1, gpus=(), stop=never):
    heard = Heard()
    heard.whole = in_processes(root, runs, workers, gpus, heard, stop)
    return heard


def test_a_process_that_is_killed_is_named(stand_in, tmp_path):
    stand_in("import os; os.kill(os.getpid(), 9)")
    heard = run_stand_ins(tmp_path, [RunId(0, 0)])
    assert heard.failures == {
        RunId(0, 0): "its process was killed by SIGKILL, as where memory is short"
    }


def test_an_error_of_ours_is_told_with_its_last_line_and_kept(stand_in, tmp_path):
    stand_in("print('no message'); print('[1]'); raise KeyError('x')")
    heard = run_stand_ins(tmp_path, [RunId(2, 5)])
    log = tmp_path / "window-002" / "seed-5" / "worker.log"
    assert heard.failures == {
        RunId(2, 5): f"its process ended with exit code 1: KeyError: 'x' (all of it in {log})"
    }
    assert "Traceback" in log.read_text()
    assert "no message" in log.read_text()


def test_the_devices_are_gone_round(stand_in, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stand_in(
        "import json, os\n"
        "print(json.dumps({'done': 1.0, 'note': os.environ['CUDA_VISIBLE_DEVICES']}), flush=True)"
    )
    notes = []
    heard = Heard()
    heard.progress = lambda run, done, note: notes.append(note)
    runs = [RunId(0, seed) for seed in range(2)]
    assert in_processes(tmp_path, runs, 2, (3, 1), heard, never)
    assert sorted(notes) == ["1", "3"]
    assert len(heard.done) == 2


def test_workers_are_asked_to_stop_and_no_more_are_begun(stand_in, tmp_path):
    stand_in(
        "import json, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\n"
        "print(json.dumps({'done': 0.5, 'note': 'begun'}), flush=True)\n"
        "time.sleep(60)\n"
    )
    begun = []
    heard = Heard()
    heard.progress = lambda run, done, note: begun.append(run)
    whole = in_processes(tmp_path, [RunId(0, s) for s in range(3)], 1, (), heard, lambda: begun)
    assert not whole
    assert begun == [RunId(0, 0)]
    assert (heard.done, heard.failures) == ([], {})


def test_a_worker_that_others_stopped_did_not_finish(stand_in, tmp_path):
    stand_in("import sys; sys.exit(130)")
    heard = run_stand_ins(tmp_path, [RunId(0, 0)])
    assert heard.whole
    assert "stopped from outside" in heard.failures[RunId(0, 0)]


def test_an_error_here_leaves_no_process_behind(stand_in, tmp_path):
    stand_in(
        "import json, os, time\n"
        "print(json.dumps({'done': 0.5, 'note': str(os.getpid())}), flush=True)\n"
        "time.sleep(60)\n"
    )
    heard, seen = Heard(), []

    def progress(run, done, note):
        seen.append(int(note))
        raise KeyboardInterrupt

    heard.progress = progress
    with pytest.raises(KeyboardInterrupt):
        in_processes(tmp_path, [RunId(0, 0)], 1, (), heard, never)
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], signal.SIGTERM)


@pytest.mark.parametrize(
    ("gpus", "slot", "environ", "expected"),
    [
        ((), 0, {}, None),
        ((), 0, {"CUDA_VISIBLE_DEVICES": "5"}, "5"),
        ((2,), 3, {}, "2"),
        ((0, 2), 1, {}, "2"),
        ((0, 2), 2, {}, "0"),
        ((0, 1), 1, {"CUDA_VISIBLE_DEVICES": "5, 7"}, "7"),
        ((0,), 0, {"CUDA_VISIBLE_DEVICES": "GPU-abc"}, "GPU-abc"),
    ],
)
def test_a_worker_sees_one_device(gpus, slot, environ, expected):
    found = worker_environment(gpus, slot, {"PATH": "x", **environ})
    assert found.get("CUDA_VISIBLE_DEVICES") == expected
    assert found["PATH"] == "x"


def test_a_device_that_this_process_does_not_see_is_refused():
    with pytest.raises(WalkforwardError, match=r"has 2, and CUDA_VISIBLE_DEVICES = '5,7' leaves 2"):
        worker_environment((0, 2), 1, {"CUDA_VISIBLE_DEVICES": "5,7"})
