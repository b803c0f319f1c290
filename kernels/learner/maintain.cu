// Target update, statistics and the published record in one launch (maintain.py).
#include "learner/publish.cuh"
#include "learner/target.cuh"

extern "C" __global__ void __launch_bounds__(LANES) maintain(
    float* __restrict__ target, const float* __restrict__ param, const float* __restrict__ loss,
    const float* __restrict__ td, const float* __restrict__ q_taken,
    const float* __restrict__ clip, const long long* __restrict__ counters,
    const double* __restrict__ schedule, const long long* __restrict__ diagnostics,
    const int* __restrict__ skip, double* record, double* __restrict__ history, long long size,
    long long every, int n, int ring, int blocks) {
    // The first block publishes; the others, or it too where it is alone, move the target.
    if (blockIdx.x == 0) {
        const Stats found = block_stats(loss, td, q_taken, n);
        if (threadIdx.x == 0)
            publish_record(found, clip, counters, schedule, diagnostics, skip, record, history,
                           ring);
    }
    const bool alone = gridDim.x == 1;
    if (blockIdx.x == 0 && !alone) return;
    const long long block = alone ? 0 : blockIdx.x - 1, others = alone ? 1 : gridDim.x - 1;
    update_target(target, param, schedule, counters, skip, size, every,
                  block * blockDim.x + threadIdx.x, others * blockDim.x);
}
