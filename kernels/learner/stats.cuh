// Four float64 statistics of a batch (batch_stats.py).
#pragma once
#include "learner/reduce.cuh"

struct Stats {
    double loss, td_mean, q_mean, td_max;
};

// By one block; thread 0 gets the result.
__device__ inline Stats block_stats(const float* __restrict__ loss, const float* __restrict__ td,
                                    const float* __restrict__ q_taken, int n) {
    double losses = 0.0, sizes = 0.0, values = 0.0, largest = 0.0;
#pragma unroll 8
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
    double count = n > 0 ? (double)n : 1.0;
    return Stats{losses / count, sizes / count, values / count, largest};
}
