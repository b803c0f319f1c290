// Gradients through the spectral normalisation, a chunk of a matrix a block (spectral_grad.py).
#include "learner/spectral.cuh"

#define ROUND 4  // elements that a thread has on their way at once; the bounds leave registers for them

extern "C" __global__ void __launch_bounds__(LANES, 4)
spectral_grad(float* __restrict__ grad, const long long* __restrict__ table,
              const float* __restrict__ vectors, const double* __restrict__ sigma,
              const double* __restrict__ dots, int count, int parts, double cap) {
    for (long long unit = blockIdx.x; unit < (long long)count * parts; unit += gridDim.x) {
        long long which = unit / parts, part = unit % parts;
        double s = sigma[which], dot = 0.0;  // every warp adds the few sums for itself
#pragma unroll 2
        for (int i = threadIdx.x & 31; i < parts; i += 32) dot += dots[which * parts + i];
        SpectralMatrix matrix = spectral_matrix(table, which);
        if (!above_cap(s, cap)) continue;
        double factor = warp_sum(dot) / s, scale = cap / s;
        const float *u = vectors + matrix.vectors, *v = u + matrix.rows;
        float* g = grad + matrix.offset;
        long long n = matrix.rows * matrix.cols, chunk = chunk_size(n, parts);
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
#pragma unroll 1
        for (long long i = part * chunk + threadIdx.x; i < end; i += ROUND * LANES) {
            float x[ROUND], left[ROUND], right[ROUND];
#pragma unroll
            for (int k = 0; k < ROUND; ++k) {
                long long at = i + k * LANES < end ? i + k * LANES : i, row = at / matrix.cols;
                x[k] = g[at];
                left[k] = u[row];
                right[k] = v[at - row * matrix.cols];
            }
#pragma unroll
            for (int k = 0; k < ROUND; ++k) {
                double turn = factor * ((double)left[k] * (double)right[k]);
                if (i + k * LANES < end) g[i + k * LANES] = (float)(scale * ((double)x[k] - turn));
            }
        }
    }
}
