// A term of stochastic depth and its gradient (scaled_add.py, scaled_add_grad.py): a factor of 0 leaves
// out what it multiplies, even a NaN.
#pragma once

__device__ inline float scaled_sum(float a, float b, float factor) {
    return factor == 0.0f ? a : a + factor * b;
}

__device__ inline float scaled_by(float g, float factor) { return factor == 0.0f ? 0.0f : factor * g; }
