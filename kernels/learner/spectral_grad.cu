// Gradients through the spectral normalisation, a chunk of a matrix a block (spectral_grad.py).
#include "learner/spectral.cuh"

extern "C" __global__ void spectral_grad(float* __restrict__ grad, const long long* __restrict__ table,
                                         const float* __restrict__ vectors,
                                         const double* __restrict__ sigma,
                                         const double* __restrict__ dots, int count, int parts,
                                         double cap) {
    for (long long unit = blockIdx.x; unit < (long long)count * parts; unit += gridDim.x) {
        long long which = unit / parts, part = unit % parts;
        double s = sigma[which];
        if (!above_cap(s, cap)) continue;
        double dot = 0.0;  // every warp adds the few sums for itself
        for (int i = threadIdx.x & 31; i < parts; i += 32) dot += dots[which * parts + i];
        double factor = warp_sum(dot) / s, scale = cap / s;
        SpectralMatrix matrix = spectral_matrix(table, which);
        const float *u = vectors + matrix.vectors, *v = u + matrix.rows;
        float* g = grad + matrix.offset;
        long long n = matrix.rows * matrix.cols, chunk = chunk_size(n, parts);
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        for (long long i = part * chunk + threadIdx.x; i < end; i += LANES) {
            long long row = i / matrix.cols, col = i - row * matrix.cols;
            double turn = factor * ((double)u[row] * (double)v[col]);
            g[i] = (float)(scale * ((double)g[i] - turn));
        }
    }
}
