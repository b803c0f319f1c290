// Features times their gates, eight columns of one part of the rows a block (gate_forward.py). The
// features are on their way while the gate is formed.
#include "learner/row_sums.cuh"
#include "learner/sigmoid.cuh"

#define ROUND 4  // rows of a thread

__device__ inline void load_round(float* value, const float* __restrict__ x, long long first,
                                  long long step, long long end, int cols, int col) {
#pragma unroll
    for (int k = 0; k < ROUND; ++k) {
        long long row = first + k * step;
        value[k] = row < end ? x[row * cols + col] : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
gate_forward(const float* __restrict__ x, const float* __restrict__ logit, float* __restrict__ out,
             int rows, int cols, int width, int parts) {
    int lane = threadIdx.x >> 3;
    long long tiles = (cols + TILE_COLUMNS - 1) / TILE_COLUMNS;
    for (long long unit = blockIdx.x; unit < tiles * parts; unit += gridDim.x) {
        int col = (int)(unit % tiles) * TILE_COLUMNS + (threadIdx.x & 7);
        if (col >= cols) continue;
        bool real = col < width;
        long long step = (long long)parts * ROW_LANES;
        long long row = unit / tiles * ROW_LANES + lane, end = real ? rows : 0;
        float value[ROUND];
        load_round(value, x, row, step, end, cols, col);
        float gate = real ? (float)sigmoid64((double)logit[col]).value : 0.0f;
#pragma unroll 1
        for (; row < rows; row += ROUND * step) {
#pragma unroll
            for (int k = 0; k < ROUND; ++k) {
                if (row + k * step < rows) {
                    out[(row + k * step) * cols + col] = real ? gate * value[k] : 0.0f;
                }
            }
            load_round(value, x, row + ROUND * step, step, end, cols, col);
        }
    }
}
