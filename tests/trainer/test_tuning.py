"""How stage 7 does a learning step: by the config, by measurement, by the cache."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from trainer.choosing import (
    MEASURES,
    NAMES,
    Later,
    Talker,
    chooses,
    settings,
    sized,
    times,
)
from trainer.setups import full, make

from onegraph.kernels import compile as compiler
from onegraph.kernels.device import DeviceError, HostDevice
from onegraph.kernels.device.ledger import Ledger
from onegraph.stages.registry import ALL
from onegraph.trainer import tuning
from onegraph.trainer.config import Config, override_config
from onegraph.trainer.file_lock import turn
from onegraph.trainer.fusing import FusedStep, FusionError, fused_steps
from onegraph.trainer.tuning import (
    FusionChooser,
    FusionTimes,
    cache_entry,
    choose,
    measure_forms,
    read_times,
    scratch_shapes,
)

#: Those of `NAMES` by the fused kernels.
FUSED = [step.name for step in fused_steps(sized(settings())[0], HostDevice())]


class Measured:
    """Stands for the measurement, and counts how often it is asked."""

    def __init__(self, found: FusionTimes | DeviceError) -> None:
        self.found, self.asked = found, 0

    def __call__(self, shapes, environment, device, known) -> FusionTimes:
        self.asked += 1
        if isinstance(self.found, DeviceError):
            raise self.found
        return self.found


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ONEGRAPH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "_measured", {})
    return tmp_path / "cache"


def asked(config: Config, measure: Measured, say: Callable[[str], None] = lambda _: None):
    return choose(*sized(config), Later(), say=say, measure=measure)


# ---------------------------------------------------------------- who decides


def test_the_fastest_is_taken_and_kept(cache) -> None:
    measure, said = Measured(times(rows8_cluster8=2.5)), []
    choice = asked(settings(), measure, said.append)
    assert (choice.name, choice.source) == ("rows8-cluster8", "measured now")
    assert choice.step is not None
    assert isinstance(choice.step, FusedStep)
    assert (choice.step.rows, choice.step.cluster) == (8, 8)
    forms = len(NAMES) + 1
    assert said == [f"choosing kernels: timing {forms} forms of the learning step on Later"]
    (file,) = cache.glob("fusion-*.json")
    again = asked(settings(), measure, said.append)
    assert (again.name, again.times) == (choice.name, choice.times)
    assert again.source == f"measured before, {file}"
    assert measure.asked == len(said) == 1


def test_none_wins_where_nothing_is_faster() -> None:
    choice = asked(settings(), Measured(times(none=3.0)))
    assert choice.step is None
    assert choice.name == "none"
    assert asked(settings(), Measured(times())).name == "none"  # kept


def test_the_config_decides_unmeasured(cache) -> None:
    measure = Measured(times())
    for name in ("none", *NAMES):
        choice = asked(settings(fusion=name), measure)
        assert (choice.name, choice.source) == (name, "by the config")
    assert measure.asked == 0
    assert not cache.exists()


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(FusionError) as error:
        asked(settings(fusion="rows4-cluster8"), Measured(times()))
    assert str(error.value) == (
        "fusion = 'rows4-cluster8' is none of the ways to do this step; choose from auto, none,"
        f" {', '.join(NAMES)}"
    )


def test_a_name_where_there_are_no_kernels_is_refused_with_the_reason() -> None:
    message = "from auto, none, wide, .*; there are no others, because the fused kernels have no"
    with pytest.raises(FusionError, match=message):
        asked(full(fusion="rows3-cluster8"), Measured(times()))


def test_where_there_are_no_kernels_the_phases_may_be_regrouped() -> None:
    measure = Measured(FusionTimes({"none": 9.0, "wide": 7.0, "whole": 8.0}))
    choice = asked(full(fusion="auto"), measure)
    assert str(choice) == "wide (measured now)"
    assert measure.asked == 1


def test_the_host_device_regroups_nothing_unasked() -> None:
    choice = choose(*sized(full(fusion="auto")), HostDevice())
    assert str(choice) == "none (the fused kernels have no code for a head of quantiles)"
    assert choose(*sized(full(fusion="whole")), HostDevice()).name == "whole"


def test_the_host_device_takes_the_first() -> None:
    measure = Measured(times())
    choice = choose(*sized(settings()), HostDevice(), measure=measure)
    assert str(choice) == "rows3-cluster8 (the first; the host device measures nothing)"
    assert measure.asked == 0


def test_no_memory_to_measure_in_is_told_and_not_kept(cache) -> None:
    short = DeviceError("CUDA_ERROR_OUT_OF_MEMORY", "allocate x", "", "there are 3 bytes")
    choice = asked(settings(), Measured(short))
    assert str(choice) == "none (no memory to measure stage 7 in: there are 3 bytes)"
    assert not list(cache.glob("fusion-*"))
    assert asked(settings(), Measured(times())).name == NAMES[0]


def test_another_error_is_no_choice() -> None:
    broken = DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS", "launch", "", "")
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        asked(settings(), Measured(broken))


# ---------------------------------------------------------------- the cache


@pytest.mark.parametrize(
    "changes",
    [
        {"network__hidden": [16, 12]},
        {"network__dueling": False},
        {"learn__batch_size": 16},
        {"learn__loss": "huber"},
        {"learn__target": "hard"},
        {"replay__capacity": 400},
        {"replay__n_step": 2},
        {"aux__denoise": True},
        {"learn__vaccine": True},
        {"env__lanes": 2},
    ],
    ids=str,
)
def test_another_size_is_another_entry(changes) -> None:
    first, _ = cache_entry(sized(settings())[0], Later())
    assert cache_entry(sized(settings(**changes))[0], Later())[0] != first


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 5},
        {"learn__lr__start": 0.5},
        {"learn__gamma": 0.5},
        {"learn__epsilon__start": 0.5},
        {"loop__timed_steps": 3},
    ],
    ids=str,
)
def test_what_costs_no_time_is_the_same_entry(changes) -> None:
    first = cache_entry(sized(settings())[0], Later())
    assert cache_entry(sized(settings(**changes))[0], Later()) == first


def test_another_machine_or_other_kernels_are_another_entry(monkeypatch) -> None:
    shapes, _ = sized(settings())
    entries = {cache_entry(shapes, Later())[0]}
    for name, value in (("name", "Sooner"), ("platform", "sm_0, driver 2")):
        device = Later()
        setattr(device, name, value)
        entries.add(cache_entry(shapes, device)[0])
    monkeypatch.setattr(compiler, "sources_digest", lambda: "others")
    entries.add(cache_entry(shapes, Later())[0])
    assert len(entries) == 4


def test_a_large_replay_counts_as_what_is_measured() -> None:
    rows = [sized(settings(replay__capacity=n))[0] for n in (65_536, 200_000)]
    assert len({cache_entry(shapes, Later())[0] for shapes in rows}) == 1


def _without(name: str):
    def change(content: dict) -> object:
        del content[name]
        return content

    return change


def _with(name: str, value: object):
    return lambda content: content | {name: value}


DAMAGE = {
    "cut short": lambda content: None,
    "no times": _without("median_us"),
    "no refusals": _without("refused"),
    "a list": lambda content: [content],
    "a number": lambda content: 3,
    "another format": _with("format", "onegraph-fusion-0"),
    "of other sizes": _with("key", {}),
    "times that are none": _with("median_us", {"none": "fast"}),
    "a form too few": lambda c: c | {"median_us": {"none": 9.0, NAMES[0]: 3.0}},
    "a form too many": lambda c: c | {"median_us": c["median_us"] | {"rows9-cluster9": 1.0}},
    "a time of zero": lambda c: c | {"median_us": c["median_us"] | {"none": 0}},
    "a time that is no number": lambda c: c | {"median_us": c["median_us"] | {"none": math.nan}},
    "timed and refused": _with("refused", {NAMES[0]: "why"}),
    "refusals that are none": _with("refused", 7),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_measured_anew(cache, damage: str) -> None:
    measure = Measured(times())
    asked(settings(), measure)
    (file,) = cache.glob("fusion-*.json")
    whole = file.read_text()
    changed = DAMAGE[damage](json.loads(whole))
    file.write_text(whole[:40] if changed is None else json.dumps(changed))
    assert asked(settings(), measure).source == "measured now"
    assert measure.asked == 2
    assert json.loads(file.read_text()) == json.loads(whole)


def test_what_the_device_refused_is_kept_with_the_times(cache) -> None:
    found = {k: v for k, v in times().median_us.items() if k != NAMES[0]}
    measure = Measured(FusionTimes(found, {NAMES[0]: "too large"}))
    first = asked(settings(), measure)
    again = asked(settings(), measure)
    assert first.name == again.name == NAMES[1]
    assert again.times == measure.found
    assert measure.asked == 1


def test_an_unwritable_cache_is_told_once_and_the_process_remembers(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ONEGRAPH_CACHE", str(tmp_path / "file"))
    measure, said = Measured(times()), []
    with pytest.warns(RuntimeWarning, match="fused kernels are chosen anew in each run: cache"):
        asked(settings(), measure, said.append)
    assert said == [TIMING]  # nothing of the lock, which the warning covers
    again = asked(settings(), measure)  # a second warning would be an error
    assert again.source == "measured before by this process"
    monkeypatch.setattr(tuning, "_measured", {})
    assert asked(settings(), measure).source == "measured now"
    assert measure.asked == 2


def test_an_absent_entry_has_no_times(tmp_path) -> None:
    assert read_times(tmp_path / "none.json", {}, {"none"}) is None


# ---------------------------------------------------------------- one process at a time

TIMING = f"choosing kernels: timing {len(NAMES) + 1} forms of the learning step on Later"
WAITING = "choosing kernels: waiting for another process that times its own on Later (it holds "


@pytest.fixture
def process():
    """Starts processes that choose, and ends those that are left."""
    with ExitStack() as started:

        def start(fastest: str, batch: int = 32) -> Talker:
            return started.enter_context(closing(Talker(chooses, fastest, batch)))

        yield start


@pytest.mark.slow
def test_of_processes_that_start_together_one_measures_and_all_take_the_same(process, cache):
    """Each would have found another way the fastest. The step of the fourth has another size."""
    starters = [process(name) for name in NAMES[2:5]]
    said = [one.hears() for one in starters]
    waiting = f"{WAITING}{cache / 'timing-later.lock'})"
    assert sorted(said) == [TIMING, waiting, waiting]
    first = starters.pop(said.index(TIMING))
    assert first.hears() == MEASURES
    larger = process(NAMES[5], 16)
    assert larger.hears() == waiting
    first.let_go()
    name, source = first.hears().split(" ", 1)
    assert (name in NAMES[2:5], source) == (True, "(measured now)")
    (file,) = cache.glob("fusion-*.json")
    assert [larger.hears(), larger.hears()] == [TIMING, MEASURES]
    larger.let_go()
    assert larger.hears() == f"{NAMES[5]} (measured now)"
    assert [one.hears() for one in starters] == [f"{name} (measured before, {file})"] * 2


@pytest.mark.slow
def test_the_lock_of_a_process_that_is_killed_is_free(process):
    holder = process(NAMES[2])
    assert [holder.hears(), holder.hears()] == [TIMING, MEASURES]
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith(WAITING):
            os.kill(holder.pid, signal.SIGKILL)

    choice = asked(settings(), Measured(times()), say)
    assert str(choice) == f"{NAMES[0]} (measured now)"
    assert [line.startswith(WAITING) for line in said] == [True, False]


@pytest.fixture
def held(cache):
    """The lock, held until it is closed."""
    path = tuning.timing_lock(cache_entry(sized(settings())[0], Later())[0], Later())
    with ExitStack() as stack:
        stack.enter_context(turn(path, lambda: pytest.fail("it is held already")))
        yield stack


def test_what_the_holder_stored_is_taken(held, cache):
    measure, said = Measured(times()), []
    entry, key = cache_entry(sized(settings())[0], Later())

    def say(line: str) -> None:
        said.append(line)
        tuning._keep(entry, key, times(whole=1.0))
        held.close()

    assert str(asked(settings(), measure, say)) == f"whole (measured before, {entry})"
    assert measure.asked == 0
    assert said == [f"{WAITING}{cache / 'timing-later.lock'})"]


def test_a_waiter_measures_where_the_holder_stored_nothing(held):
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        held.close()

    assert asked(settings(), Measured(times()), say).source == "measured now"
    assert said[1:] == [TIMING]


def test_a_wait_that_is_interrupted_leaves_no_choice(held, cache):
    def say(line: str) -> None:
        assert line.startswith(WAITING)
        raise KeyboardInterrupt

    measure = Measured(times())
    with pytest.raises(KeyboardInterrupt):
        asked(settings(), measure, say)
    assert measure.asked == 0
    held.close()
    assert asked(settings(), measure).source == "measured now"


def test_a_measurement_that_fails_lets_the_next_one_measure():
    broken = DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS", "launch", "", "")
    with pytest.raises(DeviceError):
        asked(settings(), Measured(broken))
    said: list[str] = []
    asked(settings(), Measured(times()), said.append)
    assert said == [TIMING]


def test_a_file_system_without_locks_is_said_and_each_measures(cache, monkeypatch):
    def refused(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refused)
    said: list[str] = []
    for _ in range(2):
        asked(settings(), Measured(times()), said.append)
    assert said == [
        TIMING,
        f"choosing kernels: {cache}/timing-later.lock can't be locked (Operation not supported);"
        " runs that started at the same time may choose others",
    ]


def test_gpus_of_one_name_have_one_lock_and_any_name_is_one_of_a_file(tmp_path):
    entry, locks = tmp_path / "fusion-0.json", []
    for name in ("NVIDIA H200", "NVIDIA H200 NVL", "a/../b (c)", "™"):
        device = Later()
        device.name = name
        locks.append(tuning.timing_lock(entry, device).relative_to(tmp_path).as_posix())
    assert locks == [
        "timing-nvidia-h200.lock",
        "timing-nvidia-h200-nvl.lock",
        "timing-a-b-c.lock",
        "timing-.lock",
    ]


# ---------------------------------------------------------------- measuring


def test_all_forms_are_stepped_and_leave_no_trace(monkeypatch) -> None:
    """On the host device, whose times mean nothing, and are above zero all the same."""
    monkeypatch.setattr(tuning, "ROUNDS", 2)
    monkeypatch.setattr(tuning, "SAMPLE_S", 0.0)
    device, (shapes, environment) = Later(), sized(settings())
    ledger = device.ledger
    known = tuning.candidates(shapes, device)
    found = measure_forms(shapes, environment, device, known)
    assert list(found.median_us) == ["none", *NAMES]
    assert all(us > 0 for us in found.median_us.values())
    assert found.refused == {}
    assert device.ledger is ledger
    assert sum(ledger.totals.values()) == 0
    kernels = {kernel for kernel, _ in device.launch_sites}
    assert {"draw_rows", "td_pass", "apply_step", "sample_batch", "adam_step"} <= kernels


def test_a_form_that_the_device_does_not_launch_is_left_out(monkeypatch) -> None:
    monkeypatch.setattr(tuning, "ROUNDS", 1)
    monkeypatch.setattr(tuning, "SAMPLE_S", 0.0)

    class Small(Later):
        def _launch(self, launch) -> None:
            if launch.spec.name == "td_pass" and launch.payload.keywords["cluster"] == 8:
                self.fail(
                    "CUDA_ERROR_INVALID_VALUE", "launch td_pass", "clusters of 8 are too many"
                )
            super()._launch(launch)

    device, (shapes, environment) = Small(), sized(settings())
    known = tuning.candidates(shapes, device)
    found = measure_forms(shapes, environment, device, known)
    assert set(found.refused) == set(NAMES[:3])
    assert "clusters of 8 are too many" in found.refused[NAMES[0]]
    assert set(found.median_us) == {"none", *NAMES[3:]}
    assert found.fastest in found.median_us


def test_the_scratch_replay_is_small_and_learns_nothing() -> None:
    shapes, _ = sized(settings(replay__capacity=200_000))
    small = scratch_shapes(shapes)
    assert small.capacity == 65_536
    assert small.capacity % small.lanes == 0
    assert small.config.learn.lr.start == 0
    assert small.network is shapes.network
    few, _ = sized(settings())
    assert scratch_shapes(few).capacity == 300


# ---------------------------------------------------------------- trainers


def test_a_trainer_measures_when_stage_7_asks_and_not_before(monkeypatch) -> None:
    measure = Measured(times(rows5_cluster4=1.0))
    monkeypatch.setattr(tuning, "measure_forms", measure)
    config = settings()
    six = make(Later(), config, ALL - {7})
    assert (six.fusion, measure.asked) == (None, 0)
    seven = make(Later(), config, ALL)
    assert seven.fusion is not None
    assert (seven.fusion.name, measure.asked) == ("rows5-cluster4", 1)
    seven.reconfigure(override_config(config, {"learn.lr.start": 0.5}, "the test"))
    assert measure.asked == 1  # the sizes are the same
    measure.found = times(rows3_cluster4=1.0)
    seven.reconfigure(override_config(config, {"learn.batch_size": 8}, "the test"))
    assert (seven.fusion.name, measure.asked) == ("rows3-cluster4", 2)
    again = make(Later(), config, ALL)  # as a resumed run
    assert again.fusion is not None
    assert (again.fusion.name, measure.asked) == ("rows5-cluster4", 2)
    for trainer in (six, seven, again):
        trainer.close()


def test_a_chooser_asks_once(monkeypatch) -> None:
    measure = Measured(times())
    monkeypatch.setattr(tuning, "measure_forms", measure)
    chooser = FusionChooser(*sized(settings(fusion="none")), Later())
    assert chooser.chosen is None
    assert chooser() is None
    assert chooser() is None
    assert chooser.chosen is not None
    assert measure.asked == 0


def test_the_numbers_do_not_depend_on_the_choice_on_the_host() -> None:
    """A twin has no blocks."""
    ends = set()
    for name in FUSED:
        trainer = make(HostDevice(), settings(fusion=name), ALL)
        while trainer.rows < trainer.config.loop.start_steps:
            trainer.collect()
        trainer.learn()
        ends.add(trainer.parameters().tobytes())
        trainer.close()
    assert len(ends) == 1
    assert np.isfinite(np.frombuffer(ends.pop(), np.float32)).all()


def test_a_ledger_of_its_own(monkeypatch) -> None:
    """Even where measuring fails, the device has the caller's ledger again."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no times")

    monkeypatch.setattr(tuning, "interleave", fail)
    device, (shapes, environment) = Later(), sized(settings())
    device.ledger = ledger = Ledger()
    with pytest.raises(RuntimeError, match="no times"):
        measure_forms(shapes, environment, device, tuning.candidates(shapes, device))
    assert device.ledger is ledger
