// Importance-sampling weights of a batch, by one block; see importance_weights.py.
#include "replay/weights.cuh"

extern "C" __global__ void __launch_bounds__(256) importance_weights(
    const float* __restrict__ leaves, const double* __restrict__ total,
    const int* __restrict__ index, const long long* __restrict__ counters,
    const double* __restrict__ schedule, float* __restrict__ weights, int n,
    long long leaf_count) {
    block_weights(leaves, total[0], index, counters, schedule, weights, n, leaf_count);
}
