"""Verification on a GPU: CUPTI's counts are the ledger's, and it sees what the ledger can't."""

from __future__ import annotations

import json
from functools import partial

import pytest
from planted_stages import PLANTS, own_loop

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.cupti_counts import CuptiCounter, CuptiUnavailableError
from onegraph.stages import valid_sets
from onegraph.stages.difference import RELATIVE_BOUND, TRAVELLED_BOUND, distance
from onegraph.stages.verify import verify
from onegraph.trainer.cli import main
from onegraph.trainer.config import load_config
from onegraph.trainer.subject import TrainerSubject

pytestmark = pytest.mark.gpu


@pytest.fixture
def opener(cuda):
    """Opens devices of a verification's own."""
    return type(cuda)


@pytest.fixture
def cupti(cuda):
    """Nothing but the certainty that CUPTI counts here."""
    import os

    try:
        CuptiCounter().close()
    except CuptiUnavailableError as error:
        if os.environ.get("ONEGRAPH_REQUIRE_GPU"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def chain(**changes: object):
    return load_config(
        None,
        {
            "env.kind": "chain",
            "env.lanes": 16,
            "loop.start_steps": 256,
            "loop.epoch_steps": 64,
            "learn.batch_size": 32,
            "replay.capacity": 4096,
            **{name.replace("__", "."): value for name, value in changes.items()},
        },
    )


# -------------------------------------------------------------------- a loop of one's own


def test_the_own_loop_at_every_set(opener, cupti):
    """Its kernels lie outside the package."""
    result = verify(own_loop.SUBJECT, opener, valid_sets(own_loop.KNOWN), steps=20)
    assert result.ok, "\n".join(f"{label}: {finding}" for label, finding in result.findings)
    assert result.cupti_counted


def test_what_cupti_sees_of_the_own_loop(opener, cupti):
    result = verify(own_loop.SUBJECT, opener, steps=8)
    legacy, *_, child, parent = result.sets
    assert legacy.cupti is not None
    assert legacy.cupti.classes == {
        "launches": 3,
        "copies HtoD": 1,
        "copies DtoH": 1,
        "memsets": 1,
        "allocations": 1,
        "frees": 1,
        "synchronisations": 2,
    }
    assert (legacy.cupti.kernels_outside, legacy.cupti.kernels_inside) == (3, {})
    assert child.cupti is not None
    assert child.cupti.classes == {"graph launches": 4}
    assert sorted(child.cupti.kernels_inside.values()) == [1, 1, 1, 1]
    assert parent.cupti is not None
    assert parent.cupti.classes == {"graph launches": 1}
    assert parent.cupti.kernels_outside == 0
    assert sum(parent.cupti.kernels_inside.values()) == 4
    assert parent.cupti_timed is not None
    assert parent.cupti_timed.classes == {"graph launches": 1, "event sets": 5}


def test_the_own_loop_gives_the_hosts_numbers(opener):
    """Within the bounds for devices that round apart; labels are the same."""
    ends = []
    for open_device in (opener, HostDevice):
        with open_device() as device:
            run = own_loop.SUBJECT.at(frozenset({3, 4, 5, 6}), device)
            start = run.parameters()
            for _ in range(50):
                run.step()
            ends.append((run.choices().tolist(), run.parameters()))
            run.close()
    (labels, p), (host_labels, q) = ends
    assert labels == host_labels
    _, relative, travelled = distance(p, q, start)
    assert relative <= RELATIVE_BOUND
    assert travelled <= TRAVELLED_BOUND


@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: p.name)
def test_a_plant_is_caught_by_the_checks_that_should_and_no_other(plant, opener, cupti):
    result = verify(plant.subject(), opener, (plant.honest, plant.broken), steps=6)
    honest, broken = result.sets[-2:]
    assert not honest.findings
    assert {finding.check for finding in broken.findings} == plant.caught | plant.by_cupti
    told = [(f.stage, f.phase, f.op, f.kind, f.count) for f in broken.findings]
    assert plant.told in told


# -------------------------------------------------------------------- the trainer


def test_the_trainer_at_every_set(opener, cupti):
    result = verify(TrainerSubject(chain()), opener, valid_sets(), steps=20)
    assert result.ok, "\n".join(f"{label}: {finding}" for label, finding in result.findings)
    found = {one.label: one.cupti for one in result.sets}
    # Learn's and collect's, and the one of the device's own loop.
    for label, launches in (("0-6", 2), ("0-6,8", 1)):
        seen = found[label]
        assert seen is not None
        assert seen.classes == {"graph launches": launches}
        assert seen.kernels_outside == 0


def test_the_trainer_with_cublaslt(opener, cupti):
    """A matmul is then one launch or more; the rule says how many."""
    pytest.importorskip("nvmath.bindings.cublasLt", exc_type=ImportError)
    config = chain(network__hidden=[128, 128])
    result = verify(TrainerSubject(config), partial(opener, gemm="cublaslt"), steps=8)
    assert result.ok, "\n".join(f"{label}: {finding}" for label, finding in result.findings)


def test_the_command(cupti, capsys):
    code = main(["verify", "--device", "cuda", "--steps", "12", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["cupti_counted"], result["cupti_note"]
    assert (code, [f["message"] for s in result["sets"] for f in s["findings"]]) == (0, [])
    launches = [one["cupti"]["classes"].get("graph launches") for one in result["sets"][-2:]]
    assert launches == [2, 1]
