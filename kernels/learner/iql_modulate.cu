// Scale TD errors by their advantage over the value networks, a row a thread (iql_modulate.py).
#include "learner/advantage.cuh"

extern "C" __global__ void iql_modulate(float* __restrict__ td, const float* __restrict__ q,
                                        const float* __restrict__ v_hi,
                                        const float* __restrict__ v_lo, int rows, double k,
                                        double eps, double low, double high) {
    const Advantage advantage = {q, v_hi, v_lo, k, eps, low, high};
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < rows;
         i += (long long)gridDim.x * blockDim.x)
        td[i] = modulated(advantage, td[i], i);
}
