// Importance-sampling weights of a batch, by one block; see importance_weights.py.
#include "common/detmath.cuh"
#include "common/layout.cuh"

__device__ inline double raw_weight(const float* leaves, double total, long long row,
                                    double filled, double beta, long long leaf_count) {
    if (row < 0 || row >= leaf_count) return 0.0;
    const double scaled = __dmul_rn(filled, __ddiv_rn((double)leaves[row], total));
    if (!(scaled > 0.0) || isinf(scaled)) return 0.0;
    const double raw = det_pow(scaled, -beta);
    return isfinite(raw) ? raw : 0.0;
}

extern "C" __global__ void __launch_bounds__(256) importance_weights(
    const float* __restrict__ leaves, const double* __restrict__ total,
    const int* __restrict__ index, const long long* __restrict__ counters,
    const double* __restrict__ schedule, float* __restrict__ weights, int n,
    long long leaf_count) {
    __shared__ double block_largest[32];
    const double filled = (double)counters[FILLED], beta = schedule[S_BETA], sum = total[0];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;

    // A thread's first row is kept for the second pass; a batch within the block has no others.
    double mine = 0.0, largest = 0.0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        const double raw = raw_weight(leaves, sum, index[i], filled, beta, leaf_count);
        if (i == threadIdx.x) mine = raw;
        largest = fmax(largest, raw);
    }
    for (int stride = 16; stride > 0; stride /= 2)
        largest = fmax(largest, __shfl_xor_sync(0xffffffffu, largest, stride));
    if (lane == 0) block_largest[warp] = largest;
    __syncthreads();
    largest = 0.0;
    for (int k = 0; k < warps; ++k) largest = fmax(largest, block_largest[k]);

    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        const double raw = i == threadIdx.x
                               ? mine
                               : raw_weight(leaves, sum, index[i], filled, beta, leaf_count);
        weights[i] = largest > 0.0 ? (float)__ddiv_rn(raw, largest) : 0.0f;
    }
}
