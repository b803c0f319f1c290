// Matrices under spectral normalisation (spectral.py).
#pragma once
#include "learner/reduce.cuh"

struct SpectralMatrix { long long source, offset, rows, cols, vectors; };

__device__ inline SpectralMatrix spectral_matrix(const long long* __restrict__ table, long long which) {
    const long long* at = table + 5 * which;
    return SpectralMatrix{at[0], at[1], at[2], at[3], at[4]};
}

__device__ inline bool above_cap(double sigma, double cap) { return isfinite(sigma) && sigma > cap; }
