"""What the timing of a step must show on every device, as tests over a fixture ``device``.

`tests/trainer/test_timing.py` runs them on the host device and `tests/gpu/test_timing_cuda.py` on a
GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from capture_scenarios import config, trainer_on
from planted.spin import KERNELS

from onegraph.kernels import catalogue
from onegraph.kernels.device import Device, DeviceEvent
from onegraph.stages.phase_report import phase_report
from onegraph.stages.program import Buffer, Host, Launch, Ref, StepProgram
from onegraph.stages.registry import ALL, apply, format_set, up_to
from onegraph.stages.runner import PhaseTimes, Runner
from onegraph.trainer.loop import Loop
from onegraph.trainer.program import PHASES
from onegraph.trainer.trainer import Trainer

BOUNDARIES = len(PHASES) + 1

#: The planted delays: longer than all else in such a small step, on a busy machine too.
SECONDS, CYCLES = 0.05, 40_000_000

#: What `cuEventElapsedTime` resolves, in ms, and so what each phase's time may be wrong by.
RESOLUTION_MS = 1e-3

TIMED_SETS = [frozenset({3}), frozenset({1, 2, 3, 4}), up_to(5), ALL]
STAGES = pytest.mark.parametrize("stages", TIMED_SETS, ids=format_set)


@pytest.fixture(autouse=True)
def _planted_kernels() -> Iterator[None]:
    catalogue._registry.update(KERNELS)
    yield
    for name in KERNELS:
        del catalogue._registry[name]
    catalogue.catalogue.cache_clear()


# ---------------------------------------------------------------- the two forms of the graph


class Watch:
    """What a device is asked to do about events and graphs, in order."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.calls: list[tuple[str, str]] = []
        self.sets: list[tuple[DeviceEvent, ...]] = []
        self.made = 0
        launch, put, create = device.graph_launch, device.set_graph_events, device.create_event

        def graph_launch(executable) -> None:
            self.calls.append(("launch", executable.graph.label))
            launch(executable)

        def set_graph_events(executable, events) -> None:
            self.calls.append(("set", executable.graph.label))
            self.sets.append(tuple(events))
            put(executable, events)

        def create_event(label="") -> DeviceEvent:
            self.made += 1
            return create(label)

        device.graph_launch = graph_launch  # type: ignore[method-assign]
        device.set_graph_events = set_graph_events  # type: ignore[method-assign]
        device.create_event = create_event  # type: ignore[method-assign]

    def taken(self) -> list[tuple[str, str]]:
        """The calls since the last look."""
        calls, self.calls = self.calls, []
        return calls


def test_the_timed_form_is_launched_on_timed_steps_alone(device) -> None:
    watch, trainer = Watch(device), trainer_on(device)
    trainer.learn()
    watch.taken()
    for timed in (False, True, True, False, True, False):
        counts = trainer.learn(timed=timed)
        if timed:
            assert counts.by_kind() == {"event_set": BOUNDARIES, "graph_launch": 1}
            assert watch.taken() == [("set", "learn timed"), ("launch", "learn timed")]
        else:
            assert counts.by_kind() == {"graph_launch": 1}
            assert watch.taken() == [("launch", "learn")]


def test_every_timed_step_gets_the_next_set_of_the_pool(device) -> None:
    watch = Watch(device)
    trainer = trainer_on(device, settings=config(loop__timed_steps=3))
    made = watch.made
    assert made >= 3 * BOUNDARIES
    trainer.learn()
    for _ in range(7):
        trainer.learn(timed=True)
    assert watch.made == made  # created once
    assert all(len(set(map(id, events))) == BOUNDARIES for events in watch.sets)
    pool = {tuple(map(id, events)) for events in watch.sets}
    assert len(pool) == 3
    assert watch.sets[:3] == watch.sets[3:6]
    assert all(a is not b for a, b in pairwise(events[0] for events in watch.sets))


def test_the_loop_times_k_steps_an_epoch_and_reads_them_at_its_end(device, tmp_path) -> None:
    steps, timed, epochs = 12, 4, 3
    settings = config(
        loop__epoch_steps=steps,
        loop__timed_steps=timed,
        loop__total_env_steps=32 + 4 * (steps * epochs - 1),
        loop__checkpoint_every=0,
    )
    trainer = Trainer(settings, device, up_to(6))
    watch, read = Watch(device), []
    timings = trainer.timings

    def keep() -> PhaseTimes:
        read.append((trainer.progress.learns, timings()))
        return read[-1][1]

    trainer.timings = keep  # type: ignore[method-assign]
    summaries = Loop(trainer, tmp_path).run()

    forms = [label for call, label in watch.calls if call == "launch" and "learn" in label]
    assert len(forms) == steps * epochs - 1  # the first step was the warm-up
    assert forms.count("learn timed") == timed * epochs
    assert len(watch.sets) == timed * epochs
    learn = trainer.device.ledger.steps("learn")
    assert [s.by_kind()["event_set"] for s in learn].count(BOUNDARIES) == timed * epochs
    assert [learns for learns, _ in read] == [steps, 2 * steps, 3 * steps]
    for epoch, (learns, times) in enumerate(read):
        assert len(times.steps) == timed
        assert epoch * steps <= times.steps[0]
        assert times.steps[-1] == learns - 1  # the measured one
        assert list(times.phases) == list(PHASES)
        values = np.array(list(times.phases.values()))
        assert values.shape == (len(PHASES), timed)
        assert (values >= 0).all()
        report = summaries[epoch].phases
        assert report is not None
        assert report.timed_steps == timed


def test_nothing_waits_inside_a_timed_step(device) -> None:
    trainer = trainer_on(device)
    trainer.learn()

    def waited(*args) -> None:
        raise AssertionError("the step waited for the device")

    waits = ("_synchronize", "_elapsed_ms", "_copy_dtoh")
    for name in waits:
        setattr(device, name, waited)
    for _ in range(3):
        trainer.learn(timed=True)
        trainer.collect(timed=True)
    for name in waits:
        delattr(device, name)
    assert len(trainer.timings().steps) == 2
    kinds = {kind for scope, _, kind in device.ledger.totals if scope in ("learn", "collect")}
    assert not kinds & {"sync", "dtoh", "memset_sync"}


@STAGES
def test_phases_add_up_to_no_more_than_the_step_took(device, stages) -> None:
    trainer = trainer_on(device, stages)
    trainer.learn(timed=True)
    trainer.timings()
    for _ in range(5):
        step_ms = measured(trainer.device, lambda: trainer.learn(timed=True))
        times = trainer.timings()
        total = sum(value for (value,) in times.phases.values())
        assert 0 < total <= step_ms + len(PHASES) * RESOLUTION_MS


# ---------------------------------------------------------------- what the times point at


def measured(device: Device, step) -> float:
    """Wall ms from an idle device until it is idle again."""
    device.synchronize()
    before = time.perf_counter()
    step()
    device.synchronize()
    return (time.perf_counter() - before) * 1e3


def report_of(device: Device, program: StepProgram, trainer: Trainer):
    """The report of four timed steps of `program` over the trainer's buffers."""
    runner = Runner(program, trainer.workspace, timed_sets=4)
    runner.step()
    for _ in range(3):
        runner.step(timed=True)
    step_ms = measured(device, lambda: runner.step(timed=True))
    report = phase_report(runner.timings(), step_ms)
    assert report is not None
    return report, step_ms


def with_spin(trainer: Trainer, phase: str) -> StepProgram:
    """The learning step with a slow kernel at the end of `phase`, at the trainer's stages."""
    legacy = trainer.programs.learn()
    slow = Launch("spin", {"spun": Ref("spun"), "cycles": CYCLES, "seconds": SECONDS})
    phases = tuple(replace(p, ops=(*p.ops, slow)) if p.name == phase else p for p in legacy.phases)
    program = replace(legacy, phases=phases, buffers=(*legacy.buffers, Buffer("spun", (1,), "i64")))
    return apply(program, trainer.stages, trainer.programs)


@STAGES
@pytest.mark.parametrize("phase", ["counters", "aux", "per_priority"])
def test_a_slow_kernel_is_found_in_its_phase(device, stages, phase) -> None:
    trainer = trainer_on(device, stages)
    report, step_ms = report_of(device, with_spin(trainer, phase), trainer)
    assert trainer.workspace.read("spun").tolist() == [5]
    others = sum(ms for name, ms in report.mean.items() if name != phase)
    assert report.mean[phase] > others
    assert report.last[phase] <= step_ms + RESOLUTION_MS
    assert phase in report.diagnosis
    assert "waits on the host" not in report.diagnosis


def _sleep(arrays) -> None:
    time.sleep(SECONDS)


def test_a_slow_host_before_the_work_is_a_stall(device) -> None:
    """The device has nothing to do meanwhile, and no phase has begun."""
    for stages in (frozenset({3}), ALL):
        trainer = trainer_on(device, stages)
        first, *rest = trainer.learn_program.phases
        slow = replace(first, ops=(Host("think", _sleep), *first.ops))
        program = replace(trainer.learn_program, phases=(slow, *rest))
        report, step_ms = report_of(device, program, trainer)
        assert step_ms >= SECONDS * 1e3
        assert sum(report.last.values()) < step_ms / 2
        assert "waits on the host" in report.diagnosis
        trainer.close()


def test_a_slow_host_inside_a_phase_is_in_that_phases_time(device) -> None:
    """The events on either side of it stand in one stream, which idles between them."""
    trainer = trainer_on(device, frozenset({3}))
    phases = tuple(
        replace(p, ops=(*p.ops, Host("think", _sleep))) if p.name == "aux" else p
        for p in trainer.learn_program.phases
    )
    report, _ = report_of(device, replace(trainer.learn_program, phases=phases), trainer)
    # The event before the sleep waits for what the GPU has in hand, another process' work included.
    assert report.last["aux"] >= SECONDS * 1e3 / 2
    assert "aux" in report.diagnosis
