"""Whole epochs side by side: what runs, what is measured, and the peer in JAX where it is."""

import json
from itertools import count

import numpy as np
import pytest
from rich.console import Console

from onegraph.kernels.common.layout import Counter
from onegraph.kernels.device import HostDevice
from onegraph.stages.bench import BenchError
from onegraph.stages.registry import ALL, up_to
from onegraph.trainer.bench_epoch import EpochRun, bench_epochs, epoch_subject, rounds_of
from onegraph.trainer.cli import main
from onegraph.trainer.cli.bench import epoch_table, load_peers

#: Five rounds of two learning steps.
SMALL = {
    "network.hidden": [8],
    "learn.batch_size": 16,
    "replay.capacity": 256,
    "env.lanes": 8,
    "loop.epoch_steps": 10,
    "loop.timed_steps": 1,
    "loop.learns_per_collect": 2,
    "states": 5,
}


def test_an_epoch_is_a_thousand_steps_over_a_full_replay() -> None:
    subject = epoch_subject()
    assert rounds_of(subject) == 250
    assert (subject.config.env.lanes, subject.config.learn.batch_size) == (64, 64)
    small = epoch_subject("M", SMALL)
    ends = []
    for stages in (up_to(0), up_to(6), ALL):
        run = EpochRun(small, stages, HostDevice())
        assert run.trainer.rows == 256
        for _ in range(2):
            run.epoch()
        state = run.trainer.state()
        counters = state["counters"]
        assert counters[Counter.RNG] == run.trainer.progress.learns == 20
        assert counters[Counter.COLLECT] == run.trainer.progress.collects == 256 // 8 + 10
        ends.append({name: state[name].tobytes() for name in ("theta", "replay_state", "counters")})
        run.close()
    assert ends[0] == ends[1] == ends[2]


class Fixed:
    """A candidate that says how often it ran."""

    label = "fixed"

    def __init__(self) -> None:
        self.epochs = 0

    def epoch(self) -> None:
        self.epochs += 1

    def close(self) -> None:
        raise AssertionError("whoever made it closes it")


def test_what_is_measured_is_wall_and_processor_time() -> None:
    fixed = Fixed()
    ticks = count()
    result = bench_epochs(
        epoch_subject("M", SMALL),
        [up_to(6), ALL],
        HostDevice(),
        rounds=3,
        peers=[fixed],
        skipped={"other": "absent"},
        clock=lambda: 2.0 * next(ticks),
        processor=iter(np.arange(0, 100, 0.5)).__next__,
    )
    assert fixed.epochs == 4  # one before
    assert [e.label for e in result.entries] == ["0-6 parent-graph", "0-8 epoch-graph", "fixed"]
    assert (result.learn_steps, result.vector_steps, result.lanes) == (10, 5, 8)
    for entry in result.entries:
        assert entry.seconds == (2.0, 2.0, 2.0)
        assert entry.host == (0.25, 0.25, 0.25)
    found = json.loads(json.dumps(result.to_json()))
    assert found["entries"][1]["speed_up"]["median"] == 1.0
    assert found["skipped"] == {"other": "absent"}
    console = Console(width=120)
    with console.capture() as text:
        console.print(epoch_table(result))
    assert "25.0%" in text.get()


def test_what_measures_nothing_is_refused() -> None:
    with pytest.raises(BenchError, match="0 rounds measure nothing"):
        bench_epochs(epoch_subject("M", SMALL), [ALL], HostDevice(), rounds=0)
    with pytest.raises(BenchError, match="REPLAY is the replay alone, which has no epoch"):
        epoch_subject("replay")


def test_the_command(tmp_path, capsys) -> None:
    given = [f"--set={name}={json.dumps(value)}" for name, value in SMALL.items()]
    file = tmp_path / "epochs.json"
    command = ["bench", "--epoch", "--device=host", "--rounds=1", f"--json={file}", *given]
    assert main(command) == 0
    assert "Epoch of 10 learning steps and 5 steps of 8 lanes" in " ".join(
        capsys.readouterr().out.split()
    )
    (result,) = json.loads(file.read_text())["epochs"]
    assert [e["label"] for e in result["entries"]] == ["0-6 parent-graph", "0-8 epoch-graph"]
    assert main(["bench", "--epoch", "--phases"]) == 1
    assert "leave one out" in capsys.readouterr().err


@pytest.mark.slow
def test_the_peer_in_jax_learns_and_inserts() -> None:
    pytest.importorskip("jax", exc_type=ImportError)
    pytest.importorskip("optax", exc_type=ImportError)
    subject = epoch_subject("M", SMALL)
    (peer,), skipped = load_peers().epoch_candidates(subject, "host", rounds_of(subject))
    assert skipped == {}
    before = peer.scan.parameters()
    peer.epoch()
    carry = peer.carry
    assert int(carry.slot) == 5
    states = np.asarray(carry.data.states)[: 5 * 8]
    np.testing.assert_array_equal(states.sum(1), 1.0)  # one-hot, where others were random
    np.testing.assert_array_equal(states[:8].argmax(1), max(subject.environment.start, 0))
    leaves = np.asarray(carry.learner.leaves)
    np.testing.assert_allclose(np.asarray(carry.learner.sums), leaves.sum(1), rtol=1e-5)
    assert any(
        not np.array_equal(np.asarray(w).T, b)
        for (w, _), b in zip(carry.learner.params, list(before.values())[::2], strict=True)
    )
    peer.close()
