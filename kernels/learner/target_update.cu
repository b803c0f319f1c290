// Soft or periodic hard update of a target network, an element a thread (target_update.py).
#include "common/layout.cuh"

extern "C" __global__ void target_update(float* __restrict__ target, const float* __restrict__ param,
                                         const double* __restrict__ schedule,
                                         const long long* __restrict__ counters,
                                         const int* __restrict__ skip, long long n,
                                         long long every) {
    if (skip[0] != 0) return;
    if (every > 0 && counters[ADAM_TRUNK] % every != 0) return;
    float tau = (float)schedule[S_TAU];
    bool copy = every > 0 || tau == 1.0f;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        target[i] = copy ? param[i] : target[i] + tau * (param[i] - target[i]);
    }
}
