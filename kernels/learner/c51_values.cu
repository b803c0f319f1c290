// Expected value of one action in one row a warp (c51_values.py).
#include "learner/categorical.cuh"

extern "C" __global__ void __launch_bounds__(128)
c51_values(const float* __restrict__ head, float* __restrict__ values, int rows, int actions,
           int dueling, int atoms, double v_min, double v_max) {
    __shared__ double shared[4][MAX_ATOMS];
    const int lane = threadIdx.x & 31, per_block = blockDim.x >> 5;
    double* x = shared[threadIdx.x >> 5];
    const double distance = atom_distance(atoms, v_min, v_max);
    const long long units = (long long)rows * actions;
    for (long long unit = blockIdx.x * (long long)per_block + (threadIdx.x >> 5); unit < units;
         unit += (long long)gridDim.x * per_block) {
        const long long row = unit / actions;
        const int a = (int)(unit - row * actions);
        const float* from = head + row * (actions + (dueling ? 1 : 0)) * atoms;
        for (int k = lane; k < atoms; k += 32) x[k] = atom_logit(from, a, k, actions, atoms, dueling);
        const double total = softmax_parts(x, x, atoms);
        double sum = 0.0;
        for (int k = lane; k < atoms; k += 32) sum += x[k] * (v_min + (double)k * distance);
        const double value = warp_sum(sum) / total;
        if (lane == 0) values[unit] = (float)value;
    }
}
