// Sums of squares of the gradient's chunks (grad_norm_partial.py).
#pragma once
#include "learner/reduce.cuh"

// One chunk of the gradient a block.
__device__ inline void sum_squares(const float* __restrict__ grad, double* partial, long long n,
                                   int parts) {
    long long wave = (long long)parts * LANES;
    long long chunk = (n + wave - 1) / wave * LANES;
    for (long long part = blockIdx.x; part < parts; part += gridDim.x) {
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        double sum = 0.0;
#pragma unroll 8
        for (long long i = part * chunk + threadIdx.x; i < end; i += LANES) {
            double g = (double)grad[i];
            sum += g * g;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) partial[part] = sum;
    }
}
