// Four float64 statistics of a batch, by one block (batch_stats.py).
#include "learner/stats.cuh"

extern "C" __global__ void batch_stats(const float* __restrict__ loss, const float* __restrict__ td,
                                       const float* __restrict__ q_taken, double* __restrict__ stats,
                                       int n) {
    if (blockIdx.x != 0) return;
    const Stats found = block_stats(loss, td, q_taken, n);
    if (threadIdx.x == 0) {
        stats[0] = found.loss;
        stats[1] = found.td_mean;
        stats[2] = found.q_mean;
        stats[3] = found.td_max;
    }
}
