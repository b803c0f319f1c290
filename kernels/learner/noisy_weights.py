"""Draw the noise of up to three passes and form their effective weights (see `noisy`).

The passes are `first` and those after it, in `NoisyPass`' order: a learning step draws for the
online, the target and perhaps the selecting pass at once, a collecting step for the acting pass.
Pass k of the call is written to ``out{k}``, which is laid out like the parameters; nothing but the
weights and biases of noisy layers is written. The target pass reads ``target``, the others read
``params``. ``factors`` gets those of the call's first pass, for `noisy_grad`.

A NaN or an infinity in mu or sigma reaches the effective value and no other. No layers: nothing is
written.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter
from onegraph.kernels.learner.noisy import (
    NoisyPass,
    layers_of,
    noise_factors,
    noise_of,
    noisy_value,
)


@kernel(
    per="block",
    work="tiles*passes",
    params="in f32",
    target="in f32",
    table="in i64",
    counters="in i64",
    out0="inout f32",
    out1="inout f32",
    out2="inout f32",
    factors="out f32",
    layers="i32",
    tiles="i32",
    first="i32",
    passes="i32",
    seed="u64",
)
def noisy_weights(
    params: NDArray[np.float32],
    target: NDArray[np.float32],
    table: NDArray[np.int64],
    counters: NDArray[np.int64],
    out0: NDArray[np.float32],
    out1: NDArray[np.float32],
    out2: NDArray[np.float32],
    factors: NDArray[np.float32],
    *,
    layers: int,
    tiles: int,  # noqa: ARG001 - the launch shape
    first: int,
    passes: int,
    seed: int,
) -> None:
    """Write the effective weights of `passes` passes; `tiles` counts those of all layers."""
    rows = layers_of(table, layers)
    count = sum(layer.fan_in + layer.fan_out for layer in rows)
    step = int(counters[Counter.COLLECT] if first == NoisyPass.ACT else counters[Counter.RNG] - 1)
    for slot, out in enumerate((out0, out1, out2)[:passes]):
        drawn = noise_factors(count, first + slot, step, seed)
        if slot == 0:
            factors[:count] = drawn
        source = target if first + slot == NoisyPass.TARGET else params
        for layer in rows:
            noises = noise_of(*layer.split(drawn))
            for (mu, sigma, shape), noise in zip(layer.places(), noises, strict=True):
                with np.errstate(all="ignore"):
                    value = noisy_value(
                        source[mu].reshape(shape), source[sigma].reshape(shape), noise
                    )
                out[mu] = value.reshape(-1)
