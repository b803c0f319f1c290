// Four float64 statistics of a batch, by one block (batch_stats.py).
#include "learner/reduce.cuh"

extern "C" __global__ void batch_stats(const float* __restrict__ loss, const float* __restrict__ td,
                                       const float* __restrict__ q_taken, double* __restrict__ stats,
                                       int n) {
    if (blockIdx.x != 0) return;
    double losses = 0.0, sizes = 0.0, values = 0.0, largest = 0.0;
    for (long long i = threadIdx.x; i < n; i += LANES) {
        double size = fabs((double)td[i]);
        losses += (double)loss[i];
        sizes += size;
        values += (double)q_taken[i];
        largest = nan_max(largest, size);
    }
    losses = block_sum(losses);
    sizes = block_sum(sizes);
    values = block_sum(values);
    largest = block_max(largest);
    if (threadIdx.x == 0) {
        double count = n > 0 ? (double)n : 1.0;
        stats[0] = losses / count;
        stats[1] = sizes / count;
        stats[2] = values / count;
        stats[3] = largest;
    }
}
