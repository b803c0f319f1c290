// Expectile regression of both value networks on one row a thread (expectile_loss.py).
#include "learner/heads.cuh"

__device__ inline void expectile_terms(float q, float value, float weight, float expectile, int rows,
                                       float* loss, float* grad) {
    const float u = q - value;
    const float side = fabsf(expectile - (u < 0.0f ? 1.0f : 0.0f));
    const float pull = side * u;
    *loss = weight * (pull * u);
    *grad = -(weight * (2.0f * pull)) / (float)rows;
}

extern "C" __global__ void expectile_loss(
    const float* __restrict__ head, const int* __restrict__ action,
    const float* __restrict__ weight, const float* __restrict__ v_hi,
    const float* __restrict__ v_lo, float* __restrict__ q, float* __restrict__ loss_hi,
    float* __restrict__ loss_lo, float* __restrict__ grad_hi, float* __restrict__ grad_lo, int rows,
    int actions, int dueling, float high, float low) {
    const int stride = actions + (dueling ? 1 : 0);
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < rows;
         i += (long long)gridDim.x * blockDim.x) {
        const int a = action[i];
        const float taken = a >= 0 && a < actions
                                ? action_value(head + i * stride, a, actions, dueling)
                                : __int_as_float(0x7fc00000);
        q[i] = taken;
        expectile_terms(taken, v_hi[i], weight[i], high, rows, &loss_hi[i], &grad_hi[i]);
        expectile_terms(taken, v_lo[i], weight[i], low, rows, &loss_lo[i], &grad_lo[i]);
    }
}
