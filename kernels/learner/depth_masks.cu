// Scales of the residual blocks in stochastic depth, a block a thread (depth_masks.py).
#include "common/layout.cuh"
#include "common/philox.cuh"

extern "C" __global__ void depth_masks(const long long* __restrict__ counters,
                                       float* __restrict__ scale, int blocks, double drop,
                                       unsigned long long seed) {
    unsigned int step = (unsigned int)(counters[RNG] - 1);
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < blocks;
         i += (long long)gridDim.x * blockDim.x) {
        double keep = 1.0 - ((double)(i + 1) / (double)blocks) * drop;
        double draw = philox_uniform(seed, (unsigned int)i, step, T_DEPTH).u[0];
        scale[i] = draw < keep ? (float)(1.0 / keep) : 0.0f;
    }
}
