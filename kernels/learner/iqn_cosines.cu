// Quantile levels and their cosines, a cosine a thread (iqn_cosines.py).
#include "common/detmath.cuh"
#include "common/layout.cuh"
#include "common/philox.cuh"

extern "C" __global__ void iqn_cosines(float* __restrict__ tau, float* __restrict__ cosines,
                                       const long long* __restrict__ counters, int n,
                                       int frequencies, int program, int use,
                                       unsigned long long seed) {
    unsigned int step = (unsigned int)(program == 0 ? counters[RNG] - 1 : counters[COLLECT]);
    long long total = (long long)n * frequencies;
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < total;
         k += (long long)gridDim.x * blockDim.x) {
        unsigned int level = (unsigned int)(k / frequencies);
        int i = (int)(k - (long long)level * frequencies);
        unsigned int bits = philox4x32(level, step, T_TAU, (unsigned int)use,
                                       (unsigned int)seed, (unsigned int)(seed >> 32)).x[0] >> 9;
        double value = (2.0 * (double)bits + 1.0) * 5.9604644775390625e-08;  // 2^-24
        double turns = (double)i * value;
        turns -= 2.0 * floor(0.5 * turns);
        cosines[k] = (float)det_cospi(turns > 1.0 ? 2.0 - turns : turns);
        if (i == 0) tau[level] = (float)value;
    }
}
