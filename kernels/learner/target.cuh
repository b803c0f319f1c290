// Soft or periodic hard update of a target network (target_update.py).
#pragma once
#include "common/layout.cuh"

// An element a thread: from element `first` on, each `stride`-th.
__device__ inline void update_target(float* __restrict__ target, const float* __restrict__ param,
                                     const double* __restrict__ schedule,
                                     const long long* __restrict__ counters,
                                     const int* __restrict__ skip, long long n, long long every,
                                     long long first, long long stride) {
    if (skip[0] != 0) return;
    if (every > 0 && counters[ADAM_TRUNK] % every != 0) return;
    float tau = (float)schedule[S_TAU];
    bool copy = every > 0 || tau == 1.0f;
    for (long long i = first; i < n; i += stride)
        target[i] = copy ? param[i] : target[i] + tau * (param[i] - target[i]);
}
