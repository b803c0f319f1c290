// Gradient norm, clip factor and the skip flag, by one block (clip_factor.py).
#include "learner/clip.cuh"

extern "C" __global__ void clip_factor(const double* __restrict__ partial, float* __restrict__ clip,
                                       int* __restrict__ skip, int parts, double max_norm) {
    if (blockIdx.x == 0) block_clip(partial, clip, skip, parts, max_norm);
}
