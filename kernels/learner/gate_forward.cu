// Features times their gates, eight columns of one part of the rows a block (gate_forward.py).
#include "learner/row_sums.cuh"
#include "learner/sigmoid.cuh"

extern "C" __global__ void gate_forward(const float* __restrict__ x, const float* __restrict__ logit,
                                        float* __restrict__ out, int rows, int cols, int width,
                                        int parts) {
    int lane = threadIdx.x >> 3;
    long long tiles = (cols + TILE_COLUMNS - 1) / TILE_COLUMNS;
    for (long long unit = blockIdx.x; unit < tiles * parts; unit += gridDim.x) {
        int col = (int)(unit % tiles) * TILE_COLUMNS + (threadIdx.x & 7);
        if (col >= cols) continue;
        bool real = col < width;
        float gate = real ? (float)sigmoid64((double)logit[col]).value : 0.0f;
        for (long long row = unit / tiles * ROW_LANES + lane; row < rows;
             row += (long long)parts * ROW_LANES) {
            out[row * cols + col] = real ? gate * x[row * cols + col] : 0.0f;
        }
    }
}
