"""The learning step's work, against counts by hand; ``onegraph bench --roofline``."""

from __future__ import annotations

import json

import pytest

from onegraph.kernels.device import HostDevice
from onegraph.stages.least_work import least_traffic, longest_chain, product_flops
from onegraph.stages.registry import ALL, apply, up_to
from onegraph.trainer.bench import BenchSubject, named_size
from onegraph.trainer.cli import main
from onegraph.trainer.config import load_config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.network import QNetwork
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.roofline import plain_program, roofline_of
from onegraph.trainer.shapes import Shapes

SMALL = {"network.hidden": [8], "learn.batch_size": 16, "replay.capacity": 256}


def test_the_products_of_size_s_by_hand():
    """4 states (8 with the padding), hidden 120 and 84, head 2 + 1 (dueling), batch 128.

    A pass forward: 8*120 + 120*84 + 84*3 = 960 + 10,080 + 252 = 11,292 multiply-adds a row; three
    of them (online, the choice of the next action, target): 33,876. Gradients of the weights: as
    many as a pass again, 11,292; of the activations, of which the input needs none: 84*3 + 120*84
    = 10,332. Together 55,500 a row; twice that by 128 rows: 14,208,000.
    """
    assert product_flops(plain_program(BenchSubject(named_size("S")))) == {"float32": 14_208_000}


def test_the_traffic_of_size_s_by_hand():
    """Batch 128 of 10,000 rows, three steps ahead; 11,512 parameters with their padding."""
    parameters = 2 * 11_512 * 4  # read and written
    assert least_traffic(plain_program(BenchSubject(named_size("S")))) == {
        # What the update reads and leaves.
        **dict.fromkeys(("theta", "theta_target", "adam_m", "adam_v"), parameters),
        # Rows of 4 real columns; rewards and flags of 3 rows a draw.
        **dict.fromkeys(("replay_state", "replay_next_state"), 128 * 4 * 4),
        "replay_action": 128 * 4,
        "replay_generation": 128 * 4,
        "replay_reward": 128 * 3 * 4,
        "replay_flags": 128 * 3,
        # A draw looks at the 32 leaves under one node, and a level has no more nodes than it has
        # (10,000 / 32 = 313, then 10, then the root); 128 leaves and the nodes above are written.
        "replay_leaves": (128 * 32 + 128) * 4,
        "replay_nodes": ((313 + 10 + 1) + (128 + 10 + 1)) * 8,
        # Scalars that are read and written, or read, and a row of the history.
        "counters": 2 * 16 * 8,
        "schedule": 2 * 24 * 8,
        "schedule_params": 20 * 8,
        "diagnostics": 2 * 8 * 8,
        "history": 17 * 8,
        "skip": 2 * 4,
        "replay_max_leaf": 2 * 4,
        "adam_ends": 7 * 8,
        "adam_decay": 7 * 4,
        "sample_ticket": 4,
        "norm_ticket": 4,
        # Padding between the arrays, which no product writes: 11,512 less 11,499.
        "grad": 13 * 4,
    }


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("M", {}),
        ("FULL", {}),
        ("REPLAY", {}),
        ("M", {"learn.batch_size": 2048}),  # weighs and writes back by several kernels
    ],
    ids=["M", "FULL", "REPLAY", "large batch"],
)
def test_a_larger_replay_costs_a_path_of_its_tree_and_no_more(name, overrides):
    """Four times the rows: more is touched of the tree alone, however the step is formed."""
    for stages in (up_to(4), up_to(6)):
        touched = []
        for capacity in (2**18, 2**20):
            subject = BenchSubject(named_size(name), {**overrides, "replay.capacity": capacity})
            programs = DqnPrograms(subject.shapes, subject.environment)
            program = apply(subject.program(programs), stages, subject.parts(programs))
            touched.append(least_traffic(program))
        small, large = touched
        tree = {"replay_nodes", "replay_leaves"}
        assert {n: large[n] for n in large.keys() - tree} == {
            n: small[n] for n in small.keys() - tree
        }
        assert large["replay_nodes"] < 2**20 / 32 * 8 * 2.2


def test_the_fused_form_touches_the_same_rows():
    """Its work is counted from the plain form, whose rows and paths are its own too."""
    subject = BenchSubject(named_size("S"))
    run = subject.at(ALL, HostDevice())
    fused, plain = least_traffic(run.program), least_traffic(plain_program(subject))
    run.close()
    ring = [name for name in plain if name.startswith("replay_")]
    assert len(ring) == 9
    assert {n: fused[n] for n in (*ring, "history")} == {n: plain[n] for n in (*ring, "history")}


@pytest.mark.parametrize("batch", [64, 2048])
def test_hindsight_touches_rows_too(batch):
    """The same, for goals: no array of the ring is touched whole, at one launch or in parts."""
    touched = []
    for capacity in (2**16, 2**18):
        config = load_config(
            None,
            {
                "env.kind": "bit-flip",
                "hindsight.strategy": "future",
                "learn.batch_size": batch,
                "loop.start_steps": batch,
                "replay.capacity": capacity,
            },
        )
        environment, _ = build_environment(config, None)
        shapes = Shapes(config, QNetwork.of(config, environment), capacity)
        programs = DqnPrograms(shapes, environment)
        touched.append(least_traffic(apply(programs.learn(), up_to(6), programs)))
    small, large = touched
    assert "replay_episode" in small
    assert all(small[n] == large[n] for n in small if n not in ("replay_nodes", "replay_leaves")), (
        touched
    )


def test_nodes_in_a_row_are_those_of_the_set():
    subject = BenchSubject(named_size("S"))
    result = roofline_of(subject, [up_to(6), ALL], HostDevice(), None, rounds=1)
    plain, fused = result.rows
    assert plain.chain == longest_chain(plain_program(subject)) == 16
    assert fused.chain == 4  # draw_rows, td_pass, apply_step, and the loop's control
    assert plain.work == fused.work


def test_the_command_counts_and_refuses_floors_without_a_gpu(capsys, tmp_path):
    path = tmp_path / "found.json"
    sets = [f"--set={k}={v}" for k, v in SMALL.items()]
    arguments = ["--stages", "6", "--rounds", "1", "--device", "host", "--json", str(path), *sets]
    assert main(["bench", "--roofline", *arguments]) == 0
    said = capsys.readouterr()
    assert "floors in microseconds are of a GPU" in said.err.replace("\n", " ")
    (found,) = json.loads(path.read_text())["rooflines"]
    assert found["peaks"] is None
    (row,) = found["rows"]
    assert (row["label"], row["chain"]) == ("0-6 parent-graph", 13)
    assert row["floors_us"] == {}
    assert row["bytes"] > 0


def test_the_default_is_every_stage(tmp_path):
    path = tmp_path / "found.json"
    sets = [f"--set={k}={v}" for k, v in SMALL.items()]
    command = ["bench", "--roofline", "--rounds", "1", "--device", "host", "--json", str(path)]
    assert main([*command, *sets]) == 0
    (found,) = json.loads(path.read_text())["rooflines"]
    assert [r["label"] for r in found["rows"]] == ["0-8 epoch-graph"]


@pytest.mark.parametrize("other", ["--epoch", "--phases", "--peers"])
def test_one_benchmark_at_a_time(other, capsys):
    assert main(["bench", "--roofline", other, "--device", "host"]) != 0
    assert "leave one out" in capsys.readouterr().err
