// One Adam step with decoupled decay on all groups, an element a thread (adam_step.py).
#include "common/layout.cuh"

extern "C" __global__ void adam_step(float* __restrict__ param, float* __restrict__ m,
                                     float* __restrict__ v, const float* __restrict__ grad,
                                     const float* __restrict__ clip,
                                     const double* __restrict__ schedule,
                                     const int* __restrict__ skip, const long long* __restrict__ ends,
                                     const float* __restrict__ decay, long long n, float beta1,
                                     float beta2, float eps) {
    // The groups' values are fetched beside the skip flag, not after it: one wait instead of two.
    __shared__ long long end[ADAM_GROUPS];
    __shared__ float bias1[ADAM_GROUPS], bias2[ADAM_GROUPS], shrink[ADAM_GROUPS];
    int t = threadIdx.x;
    if (t < ADAM_GROUPS) {
        end[t] = ends[t];
        bias1[t] = (float)schedule[S_BIAS + 2 * t];
        bias2[t] = (float)schedule[S_BIAS + 2 * t + 1];
        shrink[t] = decay[t];
    }
    float rate = (float)schedule[S_LEARNING_RATE], scale = clip[1];
    bool skipped = skip[0] != 0;
    __syncthreads();
    if (skipped) return;
    float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    for (long long i = blockIdx.x * (long long)blockDim.x + t; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        int group = 0;
        while (group < ADAM_GROUPS && i >= end[group]) ++group;
        if (group == ADAM_GROUPS) continue;
        float g = grad[i] * scale;
        float mean = beta1 * m[i] + rest1 * g;
        float square = beta2 * v[i] + (rest2 * g) * g;
        float p = param[i];
        float update = (mean / bias1[group]) / (sqrtf(square / bias2[group]) + eps);
        m[i] = mean;
        v[i] = square;
        param[i] = p - rate * (update + shrink[group] * p);
    }
}
