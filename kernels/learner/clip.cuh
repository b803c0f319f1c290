// The gradient norm, the factor that clips it, and the skip flag (clip_factor.py).
#pragma once
#include "learner/reduce.cuh"

// By one block, from the sums of squares of the parts, which other blocks of the grid may have
// written.
__device__ inline void block_clip(const double* partial, float* clip, int* skip, int parts,
                                  double max_norm) {
    double sum = 0.0;
    for (long long i = threadIdx.x; i < parts; i += LANES) sum += __ldcg(partial + i);
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
