// Add Gaussian noise to the real columns of states, two elements a thread (add_noise.py).
#include "common/layout.cuh"
#include "common/normal.cuh"

extern "C" __global__ void add_noise(const float* __restrict__ s,
                                     const long long* __restrict__ counters,
                                     float* __restrict__ noised, int rows, int width, int padded,
                                     double sigma, unsigned long long seed) {
    const unsigned int step = (unsigned int)(counters[RNG] - 1);
    const long long size = (long long)rows * padded;
    for (long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x; 2 * pair < size;
         pair += (long long)gridDim.x * blockDim.x) {
        const Normal2 normal =
            normal_pair(philox_uniform(seed, (unsigned int)pair, step, T_DENOISE));
        for (int half = 0; half < 2; ++half) {
            const long long i = 2 * pair + half;
            if (i >= size) break;
            noised[i] = i % padded < width
                            ? __double2float_rn(det_add((double)s[i], det_mul(sigma, normal.z[half])))
                            : 0.0f;
        }
    }
}
