// Importance-sampling weights before they are scaled, a row a thread; see raw_weights.py.
#include "replay/weights.cuh"

extern "C" __global__ void __launch_bounds__(256) raw_weights(
    const float* __restrict__ leaves, const double* __restrict__ total,
    const int* __restrict__ index, const long long* __restrict__ counters,
    const double* __restrict__ schedule, double* __restrict__ raw, double* __restrict__ largest,
    int n, long long leaf_count, int parts) {
    const double filled = (double)counters[FILLED], beta = schedule[S_BETA], sum = total[0];
    for (int part = blockIdx.x; part < parts; part += gridDim.x) {
        double most = 0.0;
        for (long long i = part * (long long)blockDim.x + threadIdx.x; i < n;
             i += (long long)parts * blockDim.x) {
            const double value = raw_weight(leaves, sum, index[i], filled, beta, leaf_count);
            raw[i] = value;
            most = fmax(most, value);
        }
        most = block_largest(most);
        if (threadIdx.x == 0) largest[part] = most;
        __syncthreads();  // before the next part overwrites what this one is compared from
    }
}
