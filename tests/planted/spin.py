"""A kernel that takes its time: for `cycles` of the GPU's clock, or `seconds` in its twin."""

import time

from onegraph.kernels import catalogue
from onegraph.kernels.catalogue import kernel

_before = set(catalogue._registry)


@kernel(per="one", block=32, spun="inout i64", cycles="i64", seconds="f64")
def spin(*, spun, cycles, seconds):
    time.sleep(seconds)
    spun[0] += 1


#: Put into the catalogue while a test needs it (`timing_rules`), and kept out of it otherwise.
KERNELS = {n: spec for n, spec in catalogue._registry.items() if n not in _before}
for _name in KERNELS:
    del catalogue._registry[_name]
