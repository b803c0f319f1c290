// Sum of squares of one chunk of the gradient a block (grad_norm_partial.py).
#include "learner/reduce.cuh"

extern "C" __global__ void grad_norm_partial(const float* __restrict__ grad,
                                             double* __restrict__ partial, long long n, int parts) {
    long long chunk = chunk_size(n, parts);
    for (long long part = blockIdx.x; part < parts; part += gridDim.x) {
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        double sum = 0.0;
        for (long long i = part * chunk + threadIdx.x; i < end; i += LANES) {
            double g = (double)grad[i];
            sum += g * g;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) partial[part] = sum;
    }
}
