// One Adam step with decoupled decay, an element a thread (adam_step.py).
#include "common/layout.cuh"

extern "C" __global__ void adam_step(float* __restrict__ param, float* __restrict__ m,
                                     float* __restrict__ v, const float* __restrict__ grad,
                                     const float* __restrict__ clip,
                                     const double* __restrict__ schedule,
                                     const int* __restrict__ skip, long long n, int group, float beta1,
                                     float beta2, float eps, float weight_decay) {
    if (skip[0] != 0) return;
    float rate = (float)schedule[S_LEARNING_RATE];
    float bias1 = (float)schedule[S_BIAS + 2 * group];
    float bias2 = (float)schedule[S_BIAS + 2 * group + 1];
    float scale = clip[1], rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        float g = grad[i] * scale;
        float mean = beta1 * m[i] + rest1 * g;
        float square = beta2 * v[i] + (rest2 * g) * g;
        float p = param[i];
        float update = (mean / bias1) / (sqrtf(square / bias2) + eps);
        m[i] = mean;
        v[i] = square;
        param[i] = p - rate * (update + weight_decay * p);
    }
}
