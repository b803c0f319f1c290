"""Run one kernel call on a device from NumPy arrays, and hold two devices to each other."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import DTYPES, find
from onegraph.kernels.device import Device, HostDevice

Arrays = dict[str, NDArray[Any]]


def poison(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What no kernel may read: NaN, or nonsense."""
    if dtype.kind == "f":
        return np.full(size, np.nan, dtype)
    return np.full(size, np.frombuffer(b"\xa5" * 8, dtype)[0], dtype)


def run_on(device: Device, kernel: str, max_blocks: int = 4096, **args: Any) -> Arrays:
    """Run `kernel` and give back every array that it may write.

    Pointers take arrays or nested lists (an ``out`` one only its size, poisoned before the call);
    scalars go through. Nothing that is passed in is changed.
    """
    spec = find(kernel)
    call: dict[str, Any] = dict(args)
    for param in spec.params:
        if not param.is_pointer:
            continue
        dtype = DTYPES[param.dtype]
        if param.access == "out":
            values = poison(max(int(args[param.name]), 1), dtype)
        else:
            values = np.array(args[param.name], dtype)
            if values.size == 0:
                values = poison(1, dtype)  # an empty array has an address too
        call[param.name] = device.upload(values, param.name)
    device.run(kernel, max_blocks=max_blocks, **call)
    written = [p.name for p in spec.params if p.access in ("out", "inout")]
    results = {name: call[name].to_host_checkpoint() for name in written}
    for param in spec.params:
        if param.is_pointer:
            device.free(call[param.name])
    return results


def run_host(kernel: str, **args: Any) -> Arrays:
    """`run_on` a fresh host device, which also checks the arguments against the declaration."""
    return run_on(HostDevice(), kernel, **args)


def assert_same(
    cuda: Device, kernel: str, tolerance: Mapping[str, Any] | None = None, **args: Any
) -> Arrays:
    """The kernel on `cuda`, with few blocks and with many, gives what its twin gives.

    Bit for bit (any NaN equals any NaN), except for the arrays in `tolerance`: the absolute
    difference that each may have.
    """
    expected = run_host(kernel, **args)
    for max_blocks in (1, 2, 4096):
        got = run_on(cuda, kernel, max_blocks, **args)
        for name, want in expected.items():
            if tolerance and name in tolerance:
                close = np.abs(got[name] - want) <= tolerance[name]
                assert np.all(close | (np.isnan(got[name]) & np.isnan(want))), (name, max_blocks)
            else:
                label = f"{kernel}: {name} with at most {max_blocks} blocks"
                np.testing.assert_array_equal(got[name], want, err_msg=label)
    return expected
