"""Run the ops that blocks have emitted, over given arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.device import Device, HostDevice
from onegraph.stages import Buffer, Phase, Runner, StepProgram, Workspace
from onegraph.trainer.blocks.emit import Emit

CODES = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}

Read = Callable[[str], NDArray[Any]]


def run_pass(emit: Emit, given: Mapping[str, NDArray[Any]], device: Device | None = None) -> Read:
    """Run the ops once; gives what reads a buffer afterwards.

    Args:
        given: every buffer that the ops read and no op writes before, by name. Gradients are
            poisoned, unless given, so that a tensor without one shows.
    """
    size = (emit.layout.size,)
    contents = {emit.grads: np.full(size, np.nan, np.float32), **given}
    emit.declare(
        *(Buffer(name, values.shape, CODES[values.dtype.name]) for name, values in contents.items())
    )
    workspace = Workspace(device or HostDevice())
    program = StepProgram("blocks", "learn", (Phase("all", tuple(emit.ops)),), emit.buffers)
    workspace.ensure(program.buffers)
    for name, values in contents.items():
        workspace.write(name, values)
    Runner(program, workspace).step()
    return workspace.read


def central_differences(
    objective: Callable[[NDArray[np.float64]], float], at: NDArray[np.float64], step: float = 1e-6
) -> NDArray[np.float64]:
    """The gradient of `objective` at a flat float64 array."""
    slope = np.empty_like(at)
    for i in range(at.size):
        above, below = at.copy(), at.copy()
        above[i] += step
        below[i] -= step
        slope[i] = (objective(above) - objective(below)) / (2 * step)
    return slope
