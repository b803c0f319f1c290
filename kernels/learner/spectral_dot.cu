// Sum of the products of gradient and weight of one chunk of a matrix a block (spectral_dot.py).
#include "learner/spectral.cuh"

#define ROUND 8  // products whose loads are on their way at once; the bounds leave registers for them

extern "C" __global__ void __launch_bounds__(LANES, 4)
spectral_dot(const float* __restrict__ grad, const float* __restrict__ params,
             const long long* __restrict__ table, double* __restrict__ dots, int count, int parts) {
    for (long long unit = blockIdx.x; unit < (long long)count * parts; unit += gridDim.x) {
        long long which = unit / parts, part = unit % parts;
        SpectralMatrix matrix = spectral_matrix(table, which);
        const float *g = grad + matrix.offset, *w = params + matrix.offset;
        long long n = matrix.rows * matrix.cols, chunk = chunk_size(n, parts);
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        double sum = 0.0;
        for (long long i = part * chunk + threadIdx.x; i < end; i += ROUND * LANES) {
            float x[ROUND], y[ROUND];
#pragma unroll
            for (int k = 0; k < ROUND; ++k) {
                bool in = i + k * LANES < end;
                x[k] = in ? g[i + k * LANES] : 0.0f;
                y[k] = in ? w[i + k * LANES] : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < ROUND; ++k) sum += (double)x[k] * (double)y[k];
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) dots[unit] = sum;
    }
}
