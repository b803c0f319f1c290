"""The learning step at the benchmarks' sizes, and ``onegraph bench``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from onegraph.kernels.common.layout import Counter as Slot
from onegraph.kernels.device import HostDevice
from onegraph.kernels.replay.tree import node_count
from onegraph.stages.registry import ALL, NONE, exact_sets
from onegraph.trainer.bench import SIZES, BenchSubject, named_size
from onegraph.trainer.cli import main
from onegraph.trainer.config import ConfigError
from onegraph.trainer.trainer import TrainerError

SMALL = {"network.hidden": [8], "learn.batch_size": 16, "replay.capacity": 256}
SMALL_FULL = {
    **SMALL,
    "states": 16,
    "network.iqn.quantiles": 4,
    "network.iqn.target_quantiles": 3,
    "aux.iql_hidden": 8,
    "aux.denoise_hidden": 8,
}


@pytest.mark.parametrize(
    ("name", "states", "hidden", "batch", "capacity"),
    [
        ("S", 4, (120, 84), 128, 10_000),
        ("M", 64, (256, 256), 64, 1_048_576),
        ("L", 64, (1024, 1024), 2048, 1_048_576),
        ("FULL", 64, (256,), 256, 1_048_576),
    ],
)
def test_the_sizes_are_the_ones_agreed_on(name, states, hidden, batch, capacity):
    subject = BenchSubject(named_size(name))
    shapes = subject.shapes
    assert (shapes.width, subject.config.network.hidden) == (states, hidden)
    assert (shapes.batch, shapes.capacity) == (batch, capacity)


def test_the_full_size_has_every_part_of_the_preset():
    subject = BenchSubject(named_size("FULL"))
    network = subject.network
    assert network.iqn is not None
    assert (network.iqn.quantiles, network.iqn.target_quantiles) == (32, 32)
    parts = (network.plain, network.spectral, network.denoise, network.value_networks)
    assert all(parts)
    assert len(network.trunk) == 5
    assert subject.config.learn.budget.on
    assert subject.shapes.draws == 512


@pytest.mark.parametrize(("name", "capacity"), [("REPLAY", 1_048_576), ("replay-10m", 10_000_000)])
def test_the_replay_alone_draws_65536_rows(name, capacity):
    subject = BenchSubject(named_size(name))
    assert (subject.shapes.batch, subject.shapes.capacity) == (65_536, capacity)
    assert subject.size.replay_only


def test_the_replay_is_full_at_every_stage():
    subject = BenchSubject(named_size("S"), SMALL)
    for stages in (NONE, ALL):
        run = subject.at(stages, HostDevice())
        assert run.workspace.read("counters")[Slot.FILLED] == 256
        leaves = run.workspace.read("replay_leaves")
        assert (leaves > 0).all()
        root = run.workspace.read("replay_nodes")[node_count(256) - 1]
        assert root == pytest.approx(leaves.sum(dtype=np.float64))
        assert run.workspace.read("replay_max_leaf")[0] == leaves.max()
        assert run.workspace.read("replay_state").std() == pytest.approx(np.sqrt(0.5), rel=0.1)
        run.close()


@pytest.mark.parametrize("name", ["S", "FULL", "REPLAY"])
def test_every_set_of_stages_does_the_same(name):
    overrides = {"REPLAY": {**SMALL, "replay.capacity": 2048}, "FULL": SMALL_FULL}.get(name, SMALL)
    subject = BenchSubject(named_size(name), overrides)
    seen = set()
    for stages in exact_sets():
        run = subject.at(stages, HostDevice())
        for _ in range(4):
            counts = run.step()["learn"]
        run.budgets["learn"].check(counts.counts, run.program)
        seen.add((run.choices().tobytes(), run.parameters().tobytes()))
        run.close()
    assert len(seen) == 1


def test_the_replay_alone_draws_anew_and_writes_back():
    subject = BenchSubject(named_size("REPLAY"), {**SMALL, "replay.capacity": 2048})
    run = subject.at(ALL, HostDevice())
    before = run.parameters()
    run.step()
    first = run.choices()
    run.step()
    assert not np.array_equal(first, run.choices())
    written = np.flatnonzero(before != run.parameters())
    assert set(written) <= {*first, *run.choices()}
    assert written.size >= 16
    assert [p.name for p in subject.at(NONE, HostDevice()).program.phases] == [
        "per_sample",
        "counters",
        "per_priority",
    ]


def test_fields_can_be_overridden():
    subject = BenchSubject(named_size("M"), {"states": 10, **SMALL})
    assert (subject.shapes.width, subject.shapes.padded) == (10, 16)
    assert subject.content["replay_state"].shape == (256, 16)
    assert not subject.content["replay_state"][:, 10:].any()
    assert subject.name == "M: states 10, MLP 8, batch 16, capacity 256"


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        ({"states": 1}, TrainerError, "states = 1 is no width"),
        ({"states": True}, TrainerError, "states = True is no width"),
        ({"states": "wide"}, TrainerError, "states = 'wide'"),
        ({"learn.batch_size": "x"}, ConfigError, "learn.batch_size"),
        ({"env.kind": "cliff"}, TrainerError, "env.kind = 'cliff' has no meaning here"),
        ({"replay.capacity": 100}, ConfigError, "no multiple of env.lanes"),
    ],
)
def test_a_wrong_override_is_named(overrides, error, message):
    with pytest.raises(error, match=message):
        _ = BenchSubject(named_size("S"), overrides).shapes


def test_an_unknown_size_is_refused_with_the_known_ones():
    with pytest.raises(TrainerError, match=f"'XL' is unknown; choose from {', '.join(SIZES)}"):
        named_size("XL")


# ---------------------------------------------------------------- the command

FAST = [f"--set={k}={v}" for k, v in SMALL.items()]


def test_the_command_prints_a_line_a_set_and_writes_json(tmp_path, capsys):
    file = tmp_path / "bench.json"
    argv = ["bench", "--device=host", "--rounds=2", "--stages=0", "--stages=all", *FAST]
    assert main([*argv, "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "0 legacy" in out
    assert "graph launches 1" in out
    found = json.loads(file.read_text())
    (result,) = found["results"]
    assert [e["label"] for e in result["entries"]] == ["0 legacy", "0-8 epoch-graph"]
    assert len(result["entries"][0]["samples_us"]) == 2
    assert found["machine"]["device"] == "NumPy"


def test_the_phases_are_profiled_with_their_nodes(tmp_path, capsys):
    file = tmp_path / "phases.json"
    argv = ["bench", "--device=host", "--rounds=2", "--phases", *FAST, "--json", str(file)]
    assert main(argv) == 0
    assert "a plain step takes" in capsys.readouterr().out
    (profile,) = json.loads(file.read_text())["phases"]
    assert profile["phases"]["per_priority"]["ops"] == ["update_priorities"]
    assert profile["phases"]["spectral"]["ops"] == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--size=XL"], "size 'XL' is unknown"),
        (["--device=tpu"], "'tpu': choose auto, cuda or host"),
        (["--set=device=cuda"], "a benchmark takes it from --device"),
        (["--stages=6,9"], "stage '9' is unknown"),
        (["--stages=6", "--stages=0-6"], "'0-6 parent-graph' is to be timed twice"),
        (["--json=/nowhere/at/all.json"], "there is no such folder"),
        (["--set=learn.batchsize=3"], "did you mean learn.batch_size"),
    ],
)
def test_what_is_wrong_is_one_line(argv, message, capsys):
    assert main(["bench", "--device=host", "--rounds=1", *FAST, *argv]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_peers_come_with_the_repository_alone(monkeypatch, tmp_path, capsys):
    from onegraph.trainer.cli import bench as command

    monkeypatch.setattr(command, "PEERS", tmp_path / "__init__.py")
    assert main(["bench", "--device=host", "--rounds=1", "--peers", *FAST]) == 1
    assert "run this from a checkout" in capsys.readouterr().err


def test_the_replay_alone_has_peers_of_its_own(capsys):
    """Those that this machine can't run are named, with the reason."""
    argv = ["bench", "--device=host", "--rounds=1", "--size=REPLAY", "--peers", *FAST]
    assert main([*argv, "--set=replay.capacity=2048", "--stages=6"]) == 0
    captured = capsys.readouterr()
    assert "skipped: torch_prefix_graph: " in captured.err
    shown = captured.out + captured.err
    for name in ("torchrl_cpu_trees", "flashbax_scan", "jax_prefix_scan"):
        assert name in shown
