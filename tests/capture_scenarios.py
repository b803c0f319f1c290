"""What can go wrong around a capture, one scenario a process: a crash fails one test.

``python -P tests/capture_scenarios.py NAME host|cuda`` runs one (``tests`` on the path) and exits
with 0 if it ended as it must: with the right numbers, or with an error that names the phase.
`tests/trainer/test_capture_safety.py` and `tests/gpu/test_capture_safety_cuda.py` start them all.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from onegraph.kernels.device import Device, DeviceError, open_device
from onegraph.kernels.device.base import Matmul
from onegraph.stages.program import ProgramError
from onegraph.stages.registry import ALL, up_to
from onegraph.trainer.config import Config, load_config
from onegraph.trainer.trainer import Progress, Trainer, TrainerError

UNSUPPORTED = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
CHILDREN = up_to(5)

#: Whose launch, in phase `ddqn`, a fault is planted at; every stage captures it.
PLANTED_AT, PLANTED_PHASE = "dqn_loss", "ddqn"

SIZES: dict[str, object] = {
    "fusion": "none",  # what stage 7 would choose on a GPU depends on what it measures there
    "env.kind": "chain",
    "env.lanes": 4,
    "replay.capacity": 256,
    "replay.n_step": 2,
    "network.hidden": [16],
    "learn.batch_size": 8,
    "loop.start_steps": 32,
    "loop.epoch_steps": 64,
    "loop.timed_steps": 2,
}

#: Every part of the full learner, small, and yet with products that have a launch of their own.
FORKED: dict[str, object] = {
    "preset": "full",
    "network__hidden": [32],
    "network__residual_blocks": 1,
    "network__attention_groups": 2,
    "network__iqn__quantiles": 32,
    "learn__batch_size": 128,
    "loop__start_steps": 128,
}

Trajectory = list[tuple[bytes, bytes]]


def config(**changes: object) -> Config:
    """The small config; a change is named by its field, with ``__`` for a dot."""
    return load_config(
        None, {**SIZES, **{name.replace("__", "."): v for name, v in changes.items()}}
    )


def trainer_on(
    device: Device, stages: frozenset[int] = ALL, settings: Config | None = None
) -> Trainer:
    """A trainer with enough in its replay, and not yet a learning step."""
    trainer = Trainer(config() if settings is None else settings, device, stages)
    while trainer.rows < trainer.config.loop.start_steps:
        trainer.collect()
    return trainer


def step(trainer: Trainer) -> tuple[bytes, bytes]:
    """Learn and collect; the batch's indices and the parameters, as bits."""
    trainer.learn()
    trainer.collect()
    return trainer.indices().tobytes(), trainer.parameters().tobytes()


def steps(trainer: Trainer, count: int) -> Trajectory:
    return [step(trainer) for _ in range(count)]


def undisturbed(device: Device, count: int, stages: frozenset[int] = ALL) -> Trajectory:
    """What a trainer that nothing happens to does; it is closed again."""
    trainer = trainer_on(device, stages)
    seen = steps(trainer, count)
    trainer.close()
    assert len({parameters for _, parameters in seen}) == count, "the trajectory must move"
    return seen


@contextlib.contextmanager
def raises(name: str, pattern: str) -> Iterator[pytest.ExceptionInfo[DeviceError]]:
    """The body must raise a `DeviceError` of that name, whose message matches."""
    with pytest.raises(DeviceError, match=pattern) as caught:
        yield caught
    assert caught.value.name == name


def plant(device: Device, action: Callable[[], object], *, capturing: bool = True) -> None:
    """Do `action` once, just before the planted kernel's launch: in its capture, or eagerly."""
    real = device._launch

    def launch(prepared) -> None:
        here = prepared.spec.name == PLANTED_AT and (device._capture is not None) == capturing
        if here:
            device._launch = real  # type: ignore[method-assign]
            action()
        real(prepared)

    device._launch = launch  # type: ignore[method-assign]


def saved(trainer: Trainer) -> tuple[dict, Progress]:
    return trainer.state(), Progress(**vars(trainer.progress))


def refused_in_capture(
    device: Device, action: Callable[[Trainer], object], op: str, stages: frozenset[int]
) -> None:
    """`action` in the captured phase is refused by phase; mended, the numbers are right."""
    want = undisturbed(device, 3, stages)
    trainer = trainer_on(device, stages)
    before = saved(trainer)
    plant(device, lambda: action(trainer))
    with raises(UNSUPPORTED, rf"at {op}.* in phase {PLANTED_PHASE}: not permitted") as caught:
        trainer.learn()
    assert caught.value.phase == PLANTED_PHASE
    trainer.restore(*before)
    assert steps(trainer, 3) == want
    assert set(trainer.learn().by_kind()) == {"graph_launch"}


# ---------------------------------------------------------------- what a capture can't hold


def allocation(device: Device) -> None:
    for stages in (CHILDREN, ALL):
        refused_in_capture(
            device, lambda t: t.device.allocate((4,), "f32", "late"), "allocate late", stages
        )


def synchronisation(device: Device) -> None:
    for stages in (CHILDREN, ALL):
        refused_in_capture(device, lambda t: t.device.synchronize(), "synchronize", stages)


def read_back(device: Device) -> None:
    refused_in_capture(
        device, lambda t: t.workspace.arrays["td"].to_host_checkpoint(), "copy_dtoh td", ALL
    )


def host_op(device: Device) -> None:
    refused_in_capture(device, lambda t: t.device.host_op("think"), "host think", ALL)


def module_load(device: Device) -> None:
    """A kernel first seen in a capture, and a matmul of a shape that was."""

    def first_seen(trainer: Trainer) -> None:
        arrays = trainer.workspace.arrays
        device.run(
            "gather_f32",
            src=arrays["td"],
            index=arrays["index"],
            dst=arrays["loss"],
            n=1,
            rows=1,
            module="graphed",
        )

    refused_in_capture(device, first_seen, "load gather_f32", ALL)


def swallowed_error(device: Device) -> None:
    """Who catches the refusal inside gets no graph that lacks a part."""
    want = undisturbed(device, 2)
    trainer = trainer_on(device)
    before = saved(trainer)

    def swallow() -> None:
        with contextlib.suppress(DeviceError):
            device.synchronize()

    plant(device, swallow)
    with raises("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", f"in phase {PLANTED_PHASE}"):
        trainer.learn()
    trainer.restore(*before)
    assert steps(trainer, 2) == want


# ---------------------------------------------------------------- garbage


class Collecting:
    """Collects garbage when it is dropped."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __del__(self) -> None:
        self.log.append("collected")
        gc.collect()


def garbage(device: Device) -> None:
    """Arrays, graphs and a whole trainer turn into garbage before and in a capture."""
    want = undisturbed(device, 3)
    log: list[str] = []
    doomed = trainer_on(device)
    steps(doomed, 2)
    doomed.ring = doomed  # type: ignore[attr-defined]
    lost = weakref.ref(doomed)
    cyclic = [device.allocate((1 << 16,), "f32"), device.allocate((64,), "f32", pinned=True)]
    cyclic.append(cyclic)  # type: ignore[arg-type]
    dropped = [device.allocate((1 << 16,), "f32"), device.allocate((64,), "f32", pinned=True)]
    dropped.append(Collecting(log))  # type: ignore[arg-type]
    gc.disable()  # or the garbage would be gone before the capture
    del doomed, cyclic
    trainer = trainer_on(device)

    def litter() -> None:
        dropped.clear()
        gc.collect()
        log.append("in the capture")

    plant(device, litter)
    seen = steps(trainer, 1)
    gc.enable()
    assert log == ["collected", "in the capture"]
    gc.collect()
    assert lost() is None, "what was garbage must go once the capture is over"
    assert seen + steps(trainer, 2) == want


def collection_at_every_captured_call(device: Device) -> None:
    want = undisturbed(device, 2)
    trainer, calls = trainer_on(device), []
    record = device._record

    def collecting(kind, label, arrays) -> None:
        if device._capture is not None:
            gc.collect()
            calls.append(label)
        record(kind, label, arrays)

    device._record = collecting  # type: ignore[method-assign]
    assert steps(trainer, 2) == want
    assert len(calls) > 10


def references_dropped(device: Device) -> None:
    """Kernels, modules and plans that only the graph still needs."""
    want = undisturbed(device, 4)
    trainer = trainer_on(device)
    seen = steps(trainer, 2)
    for cache in ("_kernels", "_matmuls", "_loaded"):
        getattr(device, cache, set()).clear()
    if hasattr(device, "_modules"):
        device._modules = []
    for name in ("learn", "collect"):
        runner = trainer.runners[name]
        assert runner.graph_nodes()
        for graph in runner._graphs:
            graph._items = []
    gc.collect()
    for _ in range(8):  # what was freed is likely to be overwritten now
        device.free(device.upload(np.full(1 << 18, np.nan, np.float32)))
    assert seen + steps(trainer, 2) == want


# ---------------------------------------------------------------- memory under graphs


def freed_buffer(device: Device) -> None:
    want = undisturbed(device, 4)
    trainer = trainer_on(device)
    seen = steps(trainer, 2)
    # Written in one phase and read in two more; all are named, and the parent in both its forms.
    users = "graphs 'ddqn', 'learn', 'learn timed', 'maintenance', 'per_priority' still use it"
    with raises("CUDA_ERROR_ILLEGAL_ADDRESS", users):
        device.free(trainer.workspace.arrays["td"])
    assert seen + steps(trainer, 2) == want


# ---------------------------------------------------------------- another config


def continued(device: Device, trainer: Trainer, changed: Config, count: int) -> Trajectory:
    """What a fresh trainer of `changed` does from the state that `trainer` is in."""
    fresh = Trainer(changed, device, trainer.stages)
    fresh.restore(*saved(trainer))
    seen = steps(fresh, count)
    fresh.close()
    return seen


def schedule_changed(device: Device) -> None:
    trainer = trainer_on(device)
    steps(trainer, 3)
    changed = config(
        learn__lr__start=0.01,
        learn__tau__start=0.5,
        learn__epsilon__start=0.9,
        learn__epsilon__end=0.1,
        replay__beta_start=0.7,
        replay__beta_steps=50,
    )
    want = continued(device, trainer, changed, 3)
    fresh_old = continued(device, trainer, config(), 3)
    trainer.reconfigure(changed)
    for run in (trainer.learn, trainer.collect):  # no capture, no instantiation: one launch each
        assert set(run().by_kind()) == {"graph_launch"}
    seen = [(trainer.indices().tobytes(), trainer.parameters().tobytes()), *steps(trainer, 2)]
    assert seen == want
    assert seen != fresh_old, "the change must show"


def recaptured(device: Device, changed: Config) -> None:
    trainer = trainer_on(device)
    steps(trainer, 3)
    want = continued(device, trainer, changed, 3)
    trainer.reconfigure(changed)
    counts = trainer.learn().by_kind()
    assert counts["capture"] > 5, counts
    assert counts["instantiate"] == 2, counts
    trainer.collect()
    seen = [(trainer.indices().tobytes(), trainer.parameters().tobytes()), *steps(trainer, 2)]
    assert seen == want
    assert set(trainer.learn().by_kind()) == {"graph_launch"}


def batch_size_changed(device: Device) -> None:
    recaptured(device, config(learn__batch_size=24))
    recaptured(device, config(learn__batch_size=3))


def constants_changed(device: Device) -> None:
    """What is baked into the graph as a kernel argument."""
    recaptured(device, config(learn__gamma=0.5, replay__n_step=4, learn__loss="mse"))


def network_changed(device: Device) -> None:
    """Replay and counters stay; the network and its optimiser begin anew."""
    changed = config(network__hidden=[24, 9], network__dueling=False)
    trainer = trainer_on(device)
    steps(trainer, 3)
    fresh = trainer_on(device, settings=changed)
    state, progress = saved(trainer)
    for name in ("theta", "theta_target", "adam_m", "adam_v"):
        state[name] = fresh.state()[name]
    state["counters"][:7] = 0  # Adam's step counts
    fresh.restore(state, progress)
    want = steps(fresh, 3)
    trainer.reconfigure(changed)
    counts = trainer.learn().by_kind()
    assert counts["capture"] > 5, counts
    assert trainer.collect().by_kind()["capture"] > 2  # the policy's forward pass is in there
    seen = [(trainer.indices().tobytes(), trainer.parameters().tobytes()), *steps(trainer, 2)]
    assert seen == want


def parts_changed(device: Device) -> None:
    """Parts of the learner go, and their buffers with them; others change their numbers."""
    parts: dict[str, object] = {
        "preset": "full",
        "network__attention_groups": 2,
        "network__iqn__quantiles": 4,
        "network__iqn__target_quantiles": 3,
        "aux__iql_hidden": 8,
        "aux__denoise_hidden": 8,
    }
    trainer = trainer_on(device, settings=config(**parts))
    steps(trainer, 3)
    changed = config(**parts, learn__vaccine=False, aux__modulate=False, network__drop_path=0.5)
    want = continued(device, trainer, changed, 3)
    trainer.reconfigure(changed)
    assert "grad_vaccine" not in trainer.workspace.buffers
    counts = trainer.learn().by_kind()
    assert counts["capture"] > 5, counts
    trainer.collect()
    seen = [(trainer.indices().tobytes(), trainer.parameters().tobytes()), *steps(trainer, 2)]
    assert seen == want
    assert set(trainer.learn().by_kind()) == {"graph_launch"}


def refused_changes(device: Device) -> None:
    """What can't be kept is refused, and the run goes on as if nothing had been asked."""
    want = undisturbed(device, 3)
    trainer = trainer_on(device)
    seen = steps(trainer, 2)
    for changes in ({"seed": 1}, {"env__lanes": 8}, {"replay__capacity": 512}):
        with pytest.raises(TrainerError, match=next(iter(changes)).split("__")[0]):
            trainer.reconfigure(config(**changes))
    assert set(trainer.learn().by_kind()) == {"graph_launch"}
    trainer.collect()
    seen.append((trainer.indices().tobytes(), trainer.parameters().tobytes()))
    assert seen == want


# ---------------------------------------------------------------- failures and neighbours


def failing_phase(device: Device) -> None:
    """A failure in the capture, in the warm-up and in neither: by phase; then it is mended."""

    def boom() -> None:
        raise ZeroDivisionError("planted")

    for stages in (CHILDREN, ALL):
        want = undisturbed(device, 3, stages)
        for capturing in (True, False):
            trainer = trainer_on(device, stages)
            before = saved(trainer)
            plant(device, boom, capturing=capturing)
            with pytest.raises(ZeroDivisionError, match=f"phase {PLANTED_PHASE}"):  # in its note
                trainer.learn()
            trainer.restore(*before)
            assert steps(trainer, 3) == want
            trainer.close()


def failing_recapture(device: Device) -> None:
    """The step was captured and ran; the failure comes when it is captured again."""
    trainer = trainer_on(device)
    steps(trainer, 2)
    changed = config(learn__batch_size=16)
    want = continued(device, trainer, changed, 2)
    trainer.reconfigure(changed)
    before = saved(trainer)
    plant(device, lambda: device.fail("CUDA_ERROR_LAUNCH_FAILED", "launch planted", "planted"))
    with raises("CUDA_ERROR_LAUNCH_FAILED", f"in phase {PLANTED_PHASE}: planted"):
        trainer.learn()
    trainer.restore(*before)
    assert steps(trainer, 2) == want


def two_trainers(device: Device) -> None:
    other = config(seed=7, learn__batch_size=16, network__hidden=[24])
    want_a, alone = undisturbed(device, 4), trainer_on(device, settings=other)
    want_b = steps(alone, 4)
    alone.close()
    a, b = trainer_on(device), trainer_on(device, settings=other)
    seen_a, seen_b = [], []
    for _ in range(4):
        seen_a.append(step(a))
        seen_b.append(step(b))
    assert seen_a == want_a
    assert seen_b == want_b
    a.close()  # and the other goes on
    assert set(b.learn().by_kind()) == {"graph_launch"}


def two_devices(device: Device) -> None:
    """Each with a stream, a ledger and graphs of its own; one goes, the other stays."""
    want = undisturbed(device, 4)
    second = open_device(device.kind)
    a, b = trainer_on(device), trainer_on(second)
    before = len(device.ledger.steps("learn")), len(second.ledger.steps("learn"))
    seen_a, seen_b = steps(a, 1), steps(b, 3)
    seen_a += steps(a, 1)
    after = len(device.ledger.steps("learn")), len(second.ledger.steps("learn"))
    assert (after[0] - before[0], after[1] - before[1]) == (2, 3)
    with raises("CUDA_ERROR_INVALID_VALUE", "is of another device"):
        device.memset(b.workspace.arrays["td"])
    b.close()
    second.close()
    assert seen_b == want[:3]
    assert seen_a + steps(a, 2) == want


def dropped_while_the_other_captures(device: Device) -> None:
    """Arrays of one device, pinned ones too, that go while another one captures."""
    want = undisturbed(device, 2)
    second = open_device(device.kind)
    arrays = [second.allocate((1 << 16,), "f32"), second.allocate((64,), "f32", pinned=True)]
    trainer = trainer_on(device)
    plant(device, arrays.clear)
    assert steps(trainer, 2) == want
    assert arrays == []
    second.close()


def closed_device(device: Device) -> None:
    """With graphs alive: refused by phase, and nothing crashes when they go."""
    for stages, phase in ((CHILDREN, "per_sample"), (ALL, "learn")):
        own = open_device(device.kind)
        trainer = trainer_on(own, stages)
        steps(trainer, 2)
        own.close()
        with raises("CUDA_ERROR_CONTEXT_IS_DESTROYED", f"in phase {phase}: the device was closed"):
            trainer.learn()
        with raises("CUDA_ERROR_CONTEXT_IS_DESTROYED", "at free"):
            trainer.close()
        del trainer, own
        gc.collect()
    assert undisturbed(device, 2)


def matmul_graph_without_its_device(device: Device) -> None:
    """A graph and its executable outlive the device that made them, and go without a crash."""
    own = open_device(device.kind)
    x = own.upload(np.ones((4, 4), np.float32), "x")
    out = own.allocate((4, 4), "f32", "out")
    with own.warm_up():
        own.matmul(Matmul(4, 4, 4), x, x, out, module="graphed")
    with own.capture("product") as graph:
        own.matmul(Matmul(4, 4, 4), x, x, out, module="graphed")
    executable = own.instantiate(graph)
    own.graph_launch(executable)
    own.close()
    with raises("CUDA_ERROR_CONTEXT_IS_DESTROYED", "graph_launch product"):
        own.graph_launch(executable)
    graph.close()
    del graph, executable, own, x, out
    gc.collect()


def retired_program(device: Device) -> None:
    """A runner of the network before does not re-allocate the parameters under the new one."""
    trainer = trainer_on(device)
    steps(trainer, 2)
    old = trainer.runners["learn"]
    trainer.reconfigure(config(network__hidden=[24]))
    parameters = trainer.parameters()
    with pytest.raises(ProgramError, match="program learn can't run any more"):
        old.step()
    assert np.array_equal(trainer.parameters(), parameters)


SCENARIOS: dict[str, Callable[[Device], None]] = {
    scenario.__name__: scenario
    for scenario in (
        allocation,
        synchronisation,
        read_back,
        host_op,
        module_load,
        swallowed_error,
        garbage,
        collection_at_every_captured_call,
        references_dropped,
        freed_buffer,
        schedule_changed,
        batch_size_changed,
        constants_changed,
        network_changed,
        parts_changed,
        refused_changes,
        failing_phase,
        failing_recapture,
        two_trainers,
        two_devices,
        dropped_while_the_other_captures,
        closed_device,
        matmul_graph_without_its_device,
        retired_program,
    )
}


def start(name: str, kind: str) -> subprocess.Popen[str]:
    """The scenario in a process of its own."""
    path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p)])
    command = [sys.executable, "-P", "-X", "faulthandler", "-W", "error", __file__, name, kind]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 300) -> None:
    """Wait for it; fail with all that it said unless it ended well."""
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        raise AssertionError(f"no end within {timeout} s\n{said}") from None
    assert process.returncode == 0, f"exit status {process.returncode}\n{said}"
    assert said.endswith("as it must\n"), said


def main(name: str, kind: str) -> None:
    with open_device(kind) as device:  # type: ignore[arg-type]
        assert device.kind == kind
        SCENARIOS[name](device)
    print(f"{name} on {kind}: as it must")


if __name__ == "__main__":
    main(*sys.argv[1:])
