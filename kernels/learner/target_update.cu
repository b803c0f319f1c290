// Soft or periodic hard update of a target network, an element a thread (target_update.py).
#include "learner/target.cuh"

extern "C" __global__ void target_update(float* __restrict__ target, const float* __restrict__ param,
                                         const double* __restrict__ schedule,
                                         const long long* __restrict__ counters,
                                         const int* __restrict__ skip, long long n,
                                         long long every) {
    update_target(target, param, schedule, counters, skip, n, every,
                  blockIdx.x * (long long)blockDim.x + threadIdx.x,
                  (long long)gridDim.x * blockDim.x);
}
