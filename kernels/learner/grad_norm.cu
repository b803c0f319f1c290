// Gradient norm, clip factor and the skip flag in one launch (grad_norm.py).
#include "common/last_block.cuh"
#include "learner/clip.cuh"
#include "learner/squares.cuh"

extern "C" __global__ void grad_norm(const float* __restrict__ grad, double* partial,
                                     float* __restrict__ clip, int* __restrict__ skip,
                                     unsigned int* ticket, long long n, int parts,
                                     double max_norm) {
    sum_squares(grad, partial, n, parts);
    if (last_block(ticket)) block_clip(partial, clip, skip, parts, max_norm);
}
