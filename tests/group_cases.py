"""Launches of every kernel with valid arguments of different sizes, taken from the pair tests.

A pair test runs its kernel on two devices. Here one of them is a host device that writes down what
it is asked to run, so that whoever needs launches of each kernel gets them without a table of his
own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gpu import test_aux_kernels as aux
from gpu import test_env_kernels as env
from gpu import test_fused_kernels as fused
from gpu import test_gemm as matmul
from gpu import test_head_kernels as heads
from gpu import test_hindsight_kernels as hindsight
from gpu import test_learner_kernels as learner
from gpu import test_optim_kernels as optim
from gpu import test_replay as replay
from gpu import test_sanitize as sanitize
from gpu import test_trunk_kernels as trunk

from onegraph.kernels.catalogue import find
from onegraph.kernels.device import Device, DeviceArray, HostDevice
from onegraph.kernels.device.base import MAX_BLOCKS

Args = dict[str, Any]

#: Whose parametrized tests are run at other sizes than `sanitize.CASES` has.
MODULES: tuple[ModuleType, ...] = (
    aux,
    env,
    heads,
    hindsight,
    learner,
    matmul,
    optim,
    replay,
    trunk,
)

#: Where in each list of parameters the sizes are taken from.
_PLACES = (0.7, 0.4, 0.0)

#: Elements of all arrays of a launch that is kept, at most.
_ELEMENTS = 1_000_000


class Recorder(HostDevice):
    """Writes down what each kernel is run with, as it was before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Args]] = []

    def run(self, kernel: str, **options: Any) -> None:
        given = {k: v for k, v in options.items() if k not in ("module", "max_blocks")}
        arrays = {k: v.host.copy() for k, v in given.items() if isinstance(v, DeviceArray)}
        self.calls.append((kernel, {**given, **arrays}))
        super().run(kernel, **options)


def _variants(test: Callable[..., None]) -> Iterator[Args]:
    """The test's parameters, from some places of their lists."""
    marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
    for place in _PLACES:
        chosen: Args = {}
        for mark in marks:
            names, values = mark.args
            names = [n.strip() for n in names.split(",")] if isinstance(names, str) else names
            values = list(values)
            value = values[round(place * (len(values) - 1))]
            if isinstance(value, type(pytest.param())):
                (value,) = value.values
            chosen |= dict(zip(names, value if len(names) > 1 else [value], strict=True))
        yield chosen


def _runs() -> Iterator[Callable[[Device], object]]:
    """Pair tests, each at one size, as functions of the device."""
    yield from sanitize.CASES.values()
    yield lambda device: fused.test_draw_rows(device, 1000, 300, 3, 17, 1, 5, 8)
    for module in MODULES:
        for name, test in vars(module).items():
            marked = {m.name for m in getattr(test, "pytestmark", ())}
            takes = inspect.signature(test).parameters if name.startswith("test_") else ()
            if "cuda" not in takes or "parametrize" not in marked:
                continue
            for chosen in _variants(test):
                yield partial(_run, test, chosen)


def _run(test: Callable[..., None], chosen: Args, device: Device) -> None:
    known = {"cuda": device, "rng": np.random.default_rng(0), "cap": MAX_BLOCKS} | chosen
    test(**{name: known[name] for name in inspect.signature(test).parameters})


def _elements(args: Args) -> int:
    return sum(v.size for v in args.values() if isinstance(v, np.ndarray))


def _sizes(args: Args) -> tuple[Any, ...]:
    return tuple(v.size if isinstance(v, np.ndarray) else v for v in args.values())


@cache
def recorded() -> Mapping[str, tuple[Args, ...]]:
    """Of each kernel with a pair test three launches of different sizes: large, middle, small."""
    found: dict[str, dict[tuple[Any, ...], Args]] = {}
    for run in _runs():
        device = Recorder()
        run(device)
        for kernel, args in device.calls:
            if _elements(args) <= _ELEMENTS:
                found.setdefault(kernel, {}).setdefault(_sizes(args), args)
    chosen = {}
    for kernel, by_size in found.items():
        known = sorted(by_size.values(), key=_elements)
        places = dict.fromkeys((len(known) - 1, (len(known) - 1) // 2, 0))
        chosen[kernel] = tuple(known[at] for at in places)
    return chosen


def members(kernel: str, count: int) -> tuple[Args, ...]:
    """`count` launches of `kernel`, of different sizes as far as there are so many."""
    known = recorded()[kernel]
    return tuple(known[i % len(known)] for i in range(count))


def on(
    device: Device, kernel: str, launches: Sequence[Args], max_blocks: int, *, at_once: bool
) -> list[dict[str, bytes]]:
    """The bytes of every array that each launch may write, launched one by one or as a group."""
    held = [
        {k: device.upload(v, k) if isinstance(v, np.ndarray) else v for k, v in args.items()}
        for args in launches
    ]
    if at_once:
        device.launch_group(device.prepare_group(kernel, held, max_blocks=max_blocks))
    else:
        for args in held:
            device.run(kernel, max_blocks=max_blocks, **args)
    written = [p.name for p in find(kernel).params if p.access in ("out", "inout")]
    results = [{n: args[n].to_host_checkpoint().tobytes() for n in written} for args in held]
    for args in held:
        for value in args.values():
            if isinstance(value, DeviceArray):
                device.free(value)
    return results
