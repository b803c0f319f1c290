// Importance-sampling weights of a batch; see importance_weights.py.
#pragma once
#include "common/detmath.cuh"
#include "common/layout.cuh"

// Of a row with this priority.
__device__ inline double weight_of(double priority, double total, double filled, double beta) {
    const double scaled = __dmul_rn(filled, __ddiv_rn(priority, total));
    if (!(scaled > 0.0) || isinf(scaled)) return 0.0;
    const double raw = det_pow(scaled, -beta);
    return isfinite(raw) ? raw : 0.0;
}

__device__ inline double raw_weight(const float* leaves, double total, long long row,
                                    double filled, double beta, long long leaf_count) {
    if (row < 0 || row >= leaf_count) return 0.0;
    return weight_of((double)leaves[row], total, filled, beta);
}

// The largest of every thread's value, none a NaN, on all threads of the block.
__device__ inline double block_largest(double value) {
    __shared__ double warp_largest[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int stride = 16; stride > 0; stride /= 2)
        value = fmax(value, __shfl_xor_sync(0xffffffffu, value, stride));
    if (lane == 0) warp_largest[warp] = value;
    __syncthreads();
    value = warp_largest[0];
    for (int k = 1; k < warps; ++k) value = fmax(value, warp_largest[k]);
    return value;
}

__device__ inline float scaled_weight(double raw, double largest) {
    return largest > 0.0 ? (float)__ddiv_rn(raw, largest) : 0.0f;
}

// All n weights, by one block. Other blocks of the grid may have written the indices.
__device__ inline void block_weights(const float* leaves, double total, const int* index,
                                     const long long* counters, const double* schedule,
                                     float* weights, int n, long long leaf_count) {
    const double filled = (double)counters[FILLED], beta = schedule[S_BETA];
    // A thread's first row is kept for the second pass; a batch within the block has no others.
    double mine = 0.0, largest = 0.0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        const double raw = raw_weight(leaves, total, __ldcg(index + i), filled, beta, leaf_count);
        if (i == threadIdx.x) mine = raw;
        largest = fmax(largest, raw);
    }
    largest = block_largest(largest);
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        const double raw = i == threadIdx.x ? mine
                                            : raw_weight(leaves, total, __ldcg(index + i), filled,
                                                         beta, leaf_count);
        weights[i] = scaled_weight(raw, largest);
    }
}
