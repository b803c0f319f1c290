// Normalised weights, a chunk of a matrix a block (spectral_scale.py).
#include "learner/spectral.cuh"

extern "C" __global__ void spectral_scale(const float* __restrict__ params,
                                          const float* __restrict__ target,
                                          const long long* __restrict__ table,
                                          const double* __restrict__ sigma,
                                          float* __restrict__ normal,
                                          float* __restrict__ normal_target, int count, int parts,
                                          double cap) {
    for (long long unit = blockIdx.x; unit < (long long)count * parts; unit += gridDim.x) {
        long long which = unit / parts, part = unit % parts;
        SpectralMatrix matrix = spectral_matrix(table, which);
        const float* w = (matrix.source ? target : params) + matrix.offset;
        float* out = (matrix.source ? normal_target : normal) + matrix.offset;
        double s = sigma[which];
        float scale = above_cap(s, cap) ? (float)(cap / s) : 1.0f;
        long long n = matrix.rows * matrix.cols, chunk = chunk_size(n, parts);
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        for (long long i = part * chunk + threadIdx.x; i < end; i += LANES) out[i] = w[i] * scale;
    }
}
