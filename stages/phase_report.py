"""Where the time of timed steps went, and what that means: a stall, or the slowest phase."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onegraph.stages.bench import no_collection
from onegraph.stages.runner import PhaseTimes, Runner

#: Below this share of the wall time the device idles for long enough to name the host.
BUSY_SHARE = 0.5


@dataclass(frozen=True)
class PhaseReport:
    """Phase times of some steps, as of an epoch.

    Attributes:
        last, mean: milliseconds by phase, of the last timed step and over all timed steps.
        timed_steps: how many those were.
        diagnosis: one sentence on what bounds the step.
        host: mean milliseconds by phase in which the host was at work, waiting left out.
        step_ms: wall time of the last timed step, run alone, from an idle device to an idle device.
        wall_ms: mean wall time of a step while many ran, with its share of whatever ran between
            them; ``None`` where it was not measured.
        phases_ms: sum of the phases of the last timed step.
        busy_share: the part of a step's wall time in which the device was at work and did not just
            wait inside a phase for the host; a lower bound, as the two may work at once. The wall
            time is the shorter of `step_ms` and `wall_ms`: a lone step also pays for waking the
            host up, which steps that follow one another do not.
    """

    last: dict[str, float]
    mean: dict[str, float]
    timed_steps: int
    diagnosis: str
    host: dict[str, float]
    step_ms: float
    wall_ms: float | None
    phases_ms: float
    busy_share: float


def phase_report(
    times: PhaseTimes, step_ms: float, wall_ms: float | None = None
) -> PhaseReport | None:
    """Read event times against the wall time of a step; ``None`` without any.

    Two things make a device idle. Between its phases no event sees it: the phases then sum to less
    than the wall time. Inside a phase the events count it as the phase's own time, because the
    device's clock runs on while the host has yet to hand over the next op; so the time in which the
    host was at work there is taken off. On the host device, which does its work when it is called,
    only the host's own ops are such time.

    Args:
        times: of the timed steps; the last of them is the one that `step_ms` measured.
        step_ms: wall milliseconds of that step, from an idle device to an idle device.
        wall_ms: mean wall milliseconds of a step while many ran.
    """
    if not times.steps:
        return None
    last = {name: values[-1] for name, values in times.phases.items()}
    mean = {name: float(np.mean(values)) for name, values in times.phases.items()}
    host = {name: float(np.mean(values)) for name, values in times.host.items()}
    waits = {
        name: min(values[-1], last[name]) for name, values in times.host.items() if name in last
    }
    total, waited = sum(last.values()), sum(waits.values())
    wall = step_ms if wall_ms is None else min(step_ms, wall_ms)
    busy = min((total - waited) / wall, 1.0) if wall > 0 else 1.0
    return PhaseReport(
        last=last,
        mean=mean,
        timed_steps=len(times.steps),
        diagnosis=_stall(total, waits, wall, busy) if busy < BUSY_SHARE else _slowest(mean, host),
        host=host,
        step_ms=step_ms,
        wall_ms=wall_ms,
        phases_ms=total,
        busy_share=busy,
    )


def time_phases(
    runner: Runner, steps: int, clock: Callable[[], float] = time.perf_counter
) -> PhaseReport | None:
    """Run `steps` timed steps (at least one), each alone on an idle device, and read them.

    ``None`` where the program has no boundary events. The first step of a runner warms up and
    captures: take it, and a few more, before.
    """
    if not runner.keeps_times:
        return None
    taken: list[PhaseTimes] = []
    step_ms = 0.0
    with no_collection():
        for _ in range(steps):
            runner.device.synchronize()
            before = clock()
            runner.step(timed=True)
            runner.device.synchronize()
            step_ms = (clock() - before) * 1e3
            taken.append(runner.timings())  # at once: a run keeps few sets of events
    names = taken[0].phases
    times = PhaseTimes(
        tuple(step for one in taken for step in one.steps),
        {name: tuple(ms for one in taken for ms in one.phases[name]) for name in names},
        {name: tuple(ms for one in taken for ms in one.host[name]) for name in names},
    )
    return phase_report(times, step_ms)


def _stall(total: float, waits: dict[str, float], step_ms: float, busy: float) -> str:
    """Names the place where the device waits longest: between the phases, or inside one."""
    outside = step_ms - total
    worst = max(waits, key=lambda name: waits[name], default="")
    if worst and waits[worst] > outside:
        where = f"longest in {worst}, where the host is at work for {waits[worst]:.3f} ms"
    else:
        where = f"the phases take {total:.3f} ms, so {outside:.3f} ms lie outside them"
    return (
        f"the device is at work in {busy:.0%} of a {step_ms:.3f} ms step: it waits on the host"
        f" (pipeline stall, launch-bound); {where}"
    )


def _slowest(mean: dict[str, float], host: dict[str, float]) -> str:
    """Names the phase in which the device itself takes longest."""
    own = {name: max(ms - host.get(name, 0.0), 0.0) for name, ms in mean.items()}
    slowest = max(own, key=lambda name: own[name])
    total = sum(mean.values())
    share = mean[slowest] / total if total else 0.0
    return f"the slowest phase is {slowest}: {mean[slowest]:.3f} ms, {share:.0%} of them"
