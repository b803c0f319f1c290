// Dot products of one chunk of two gradients a block (vaccine_partial.py).
#include "learner/reduce.cuh"

extern "C" __global__ void vaccine_partial(const float* __restrict__ grad,
                                           const float* __restrict__ vaccine,
                                           double* __restrict__ dots, long long n, int parts) {
    long long chunk = chunk_size(n, parts);
    for (long long part = blockIdx.x; part < parts; part += gridDim.x) {
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        double cross = 0.0, square = 0.0;
        for (long long i = part * chunk + threadIdx.x; i < end; i += LANES) {
            double v = (double)vaccine[i];
            cross += (double)grad[i] * v;
            square += v * v;
        }
        cross = block_sum(cross);
        square = block_sum(square);
        if (threadIdx.x == 0) {
            dots[part] = cross;
            dots[parts + part] = square;
        }
    }
}
