// Gradient of features times level embeddings: a thread has one feature of one row, for all levels
// (iqn_mix_grad.py).
#include "learner/scaled.cuh"

#define ROUND 16  // levels whose loads are on their way at once; the bounds leave registers for them

extern "C" __global__ void __launch_bounds__(256, 3)
iqn_mix_grad(const float* __restrict__ features, const float* __restrict__ phi,
             const float* __restrict__ grad_z, const float* __restrict__ depth,
             float* __restrict__ grad_phi, float* __restrict__ grad_features,
             float* __restrict__ grad_branch, int rows, int quantiles, int hidden, int add,
             int with_branch) {
    long long total = (long long)rows * hidden;
    float by = with_branch ? depth[0] : 0.0f;
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < total;
         k += (long long)gridDim.x * blockDim.x) {
        long long row = k / hidden;
        long long at = row * quantiles * hidden + (k - row * hidden);
        const float *of_phi = phi + at, *of_z = grad_z + at;
        float* to = grad_phi + at;
        float feature = features[k], sum = 0.0f;
        int j = 0;
        for (; j + ROUND <= quantiles; j += ROUND) {
            float p[ROUND], g[ROUND];
#pragma unroll
            for (int i = 0; i < ROUND; ++i, of_phi += hidden, of_z += hidden) {
                p[i] = *of_phi;
                g[i] = *of_z;
            }
#pragma unroll
            for (int i = 0; i < ROUND; ++i, to += hidden) {
                *to = p[i] > 0.0f ? g[i] * feature : 0.0f;
                sum += g[i] * (p[i] < 0.0f ? 0.0f : p[i]);
            }
        }
#pragma unroll 1
        for (; j < quantiles; ++j, of_phi += hidden, of_z += hidden, to += hidden) {
            float p = *of_phi, g = *of_z;
            *to = p > 0.0f ? g * feature : 0.0f;
            sum += g * (p < 0.0f ? 0.0f : p);
        }
        sum = (add ? grad_features[k] : 0.0f) + sum;
        grad_features[k] = sum;
        if (with_branch) grad_branch[k] = scaled_by(sum, by);
    }
}
