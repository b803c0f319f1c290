// Sum of the products of gradient and weight of one chunk of a matrix a block (spectral_dot.py).
#include "learner/spectral.cuh"

extern "C" __global__ void spectral_dot(const float* __restrict__ grad,
                                        const float* __restrict__ params,
                                        const long long* __restrict__ table,
                                        double* __restrict__ dots, int count, int parts) {
    for (long long unit = blockIdx.x; unit < (long long)count * parts; unit += gridDim.x) {
        long long which = unit / parts, part = unit % parts;
        SpectralMatrix matrix = spectral_matrix(table, which);
        const float *g = grad + matrix.offset, *w = params + matrix.offset;
        long long n = matrix.rows * matrix.cols, chunk = chunk_size(n, parts);
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        double sum = 0.0;
        for (long long i = part * chunk + threadIdx.x; i < end; i += LANES) {
            sum += (double)g[i] * (double)w[i];
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) dots[unit] = sum;
    }
}
