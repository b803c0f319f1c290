// Layer normalisation of a row by a warp (layer_norm.py), of which the first 256 columns are in registers.
#pragma once
#include "learner/row_sums.cuh"

#define HELD 8  // columns of a lane

// `value`, `factor` and `term` are the lane's columns of the row, of the scale and of the shift, 0 past
// the row's end; what lies behind the first 256 columns is read at `from`, `scale` and `shift`.
__device__ inline void normalise_row(const float (&value)[HELD], const float (&factor)[HELD],
                                     const float (&term)[HELD], const float* from, const float* scale,
                                     const float* shift, float* to, float* mean, float* rstd, int cols,
                                     float eps) {
    int lane = threadIdx.x & 31;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; ++k) sum += value[k];
#pragma unroll 1
    for (int j = lane + 32 * HELD; j < cols; j += 32) sum += from[j];
    float m = warp_sum(sum) / (float)cols;
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        float d = value[k] - m;
        if (lane + 32 * k < cols) squares += d * d;
    }
#pragma unroll 1
    for (int j = lane + 32 * HELD; j < cols; j += 32) {
        float d = from[j] - m;
        squares += d * d;
    }
    float r = 1.0f / sqrtf(warp_sum(squares) / (float)cols + eps);
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        int j = lane + 32 * k;
        if (j < cols) to[j] = ((value[k] - m) * r) * factor[k] + term[k];
    }
#pragma unroll 1
    for (int j = lane + 32 * HELD; j < cols; j += 32) {
        to[j] = ((from[j] - m) * r) * scale[j] + shift[j];
    }
    if (lane == 0) {
        *mean = m;
        *rstd = r;
    }
}
