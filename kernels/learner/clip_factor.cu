// Gradient norm, clip factor and the skip flag, by one block (clip_factor.py).
#include "learner/reduce.cuh"

extern "C" __global__ void clip_factor(const double* __restrict__ partial, float* __restrict__ clip,
                                       int* __restrict__ skip, int parts, double max_norm) {
    if (blockIdx.x != 0) return;
    double sum = 0.0;
    for (long long i = threadIdx.x; i < parts; i += LANES) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        double norm = sqrt(sum);
        bool finite = isfinite(norm);
        double scale = max_norm > 0.0 && norm > max_norm ? max_norm / norm : 1.0;
        clip[0] = (float)norm;
        clip[1] = finite ? (float)scale : 0.0f;
        skip[0] = finite ? 0 : 1;
    }
}
