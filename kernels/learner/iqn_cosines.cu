// Quantile levels and their cosines, eight levels a warp (iqn_cosines.py). A lane draws one of the
// levels, so that none is drawn for each of its cosines. Angles are whole numbers of 2^-24 half turns:
// what is not polynomial needs no float64.
#include "common/detmath.cuh"
#include "common/layout.cuh"
#include "common/philox.cuh"

#define WARP_LEVELS 8
#define AT_ONCE 4
#define HALF_TURN (1u << 24)
#define PI_2_24 (3.14159265358979323846 * 5.9604644775390625e-08)  // pi 2^-24, exactly scaled

// cos of `angle` 2^-24 half turns.
__device__ inline float cosine(unsigned int angle) {
    angle &= 2 * HALF_TURN - 1;
    if (angle > HALF_TURN) angle = 2 * HALF_TURN - angle;
    bool negative = angle > HALF_TURN / 2;
    if (negative) angle = HALF_TURN - angle;
    bool sine = angle > HALF_TURN / 4;
    if (sine) angle = HALF_TURN / 2 - angle;
    float value = (float)det_quarter(det_mul((double)angle, PI_2_24), sine);
    return negative ? -value : value;
}

extern "C" __global__ void __launch_bounds__(256, 3)
iqn_cosines(float* __restrict__ tau, float* __restrict__ cosines,
            const long long* __restrict__ counters, int n, int frequencies, int program, int use,
            unsigned long long seed) {
    unsigned int step = (unsigned int)(program == 0 ? counters[RNG] - 1 : counters[COLLECT]);
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    for (long long first = (blockIdx.x * (long long)warps + (threadIdx.x >> 5)) * WARP_LEVELS;
         first < n; first += (long long)gridDim.x * warps * WARP_LEVELS) {
        long long own = first + (lane & (WARP_LEVELS - 1));
        unsigned int bits = philox4x32((unsigned int)own, step, T_TAU, (unsigned int)use,
                                       (unsigned int)seed, (unsigned int)(seed >> 32)).x[0] >> 9;
        unsigned int odd = 2 * bits + 1;  // tau 2^24
        if (lane < WARP_LEVELS && own < n) tau[own] = (float)odd * 5.9604644775390625e-08f;
#pragma unroll 1
        for (int base = 0; base < frequencies; base += 32) {
            int i = base + lane;
#pragma unroll 1
            for (int level = 0; level < WARP_LEVELS; level += AT_ONCE) {
                float value[AT_ONCE];
#pragma unroll
                for (int k = 0; k < AT_ONCE; ++k) {
                    value[k] = cosine(__shfl_sync(0xffffffffu, odd, level + k) * (unsigned int)i);
                }
#pragma unroll
                for (int k = 0; k < AT_ONCE; ++k) {
                    long long at = first + level + k;
                    if (at < n && i < frequencies) cosines[at * frequencies + i] = value[k];
                }
            }
        }
    }
}
