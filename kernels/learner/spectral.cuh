// Matrices under spectral normalisation (spectral.py).
#pragma once
#include "learner/reduce.cuh"

struct SpectralMatrix { long long source, offset, rows, cols, vectors; };

__device__ inline SpectralMatrix spectral_matrix(const long long* __restrict__ table, long long which) {
    const long long* at = table + 5 * which;
    return SpectralMatrix{at[0], at[1], at[2], at[3], at[4]};
}

// The norm of x, which every warp forms for itself.
__device__ inline double norm_of(const float* x, long long n) {
    double sum = 0.0;
    for (long long i = threadIdx.x & 31; i < n; i += 32) sum += (double)x[i] * (double)x[i];
    return sqrt(warp_sum(sum));
}

__device__ inline bool above_cap(double sigma, double cap) { return isfinite(sigma) && sigma > cap; }
