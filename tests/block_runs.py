"""Run ops outside any trainer: one phase, once, on the host device."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onegraph.kernels.device import Device, HostDevice
from onegraph.stages import Buffer, Phase, Runner, StepProgram, Workspace
from onegraph.stages.program import Op, merge_buffers
from onegraph.trainer.blocks.emit import Emit

CODES = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}


def run_ops(
    ops: Iterable[Op],
    buffers: Iterable[Buffer],
    values: Mapping[str, ArrayLike] | None = None,
    *,
    device: Device | None = None,
    steps: int = 1,
) -> dict[str, NDArray[Any]]:
    """What every buffer holds after the ops ran; `values` are written into them before.

    Pass the buffers of the values too; those that several parts declare may stand there twice.
    """
    program = StepProgram("block", "learn", (Phase("block", tuple(ops)),), merge_buffers(buffers))
    space = Workspace(device or HostDevice())
    space.ensure(program.buffers)
    runner = Runner(program, space)
    for name, given in (values or {}).items():
        buffer = space.buffers[name]
        space.write(name, np.asarray(given, space.read(name).dtype).reshape(buffer.shape))
    for _ in range(steps):
        runner.step()
    return {name: space.read(name) for name in space.buffers}


def run_pass(
    emit: Emit, given: Mapping[str, NDArray[Any]], *, device: Device | None = None
) -> dict[str, NDArray[Any]]:
    """`run_ops` on what `emit` has gathered.

    `given` holds every buffer that its ops read and none writes before. Gradients are poisoned,
    unless given, so that a tensor without one shows.
    """
    values = {emit.grads: np.full(emit.layout.size, np.nan, np.float32), **given}
    others = (Buffer(name, x.shape, CODES[x.dtype.name]) for name, x in values.items())
    return run_ops(emit.ops, (*emit.buffers, *others), values, device=device)
