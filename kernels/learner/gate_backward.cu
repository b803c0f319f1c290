// Gradients of the gate's logits and inputs, eight columns a block (gate_backward.py). What the sums
// are made of is on its way while the gate is formed.
#include "learner/row_sums.cuh"
#include "learner/sigmoid.cuh"

#define ROUND 8  // rows of a thread

__device__ inline void load_round(float* value, float* g, const float* __restrict__ x,
                                  const float* __restrict__ grad_out, long long first,
                                  long long end, int cols, int col) {
#pragma unroll
    for (int k = 0; k < ROUND; ++k) {
        bool in = first + k * ROW_LANES < end;
        long long at = (first + k * ROW_LANES) * cols + col;
        value[k] = in ? x[at] : 0.0f;
        g[k] = in ? grad_out[at] : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(256, 3)
gate_backward(const float* __restrict__ x, const float* __restrict__ logit,
              const float* __restrict__ grad_out, float* __restrict__ grad_logit,
              float* __restrict__ grad_in, int rows, int cols, int width, float l1,
              int with_grad_in) {
    int lane = threadIdx.x >> 3;
    for (long long tile = blockIdx.x; tile * TILE_COLUMNS < cols; tile += gridDim.x) {
        int col = (int)tile * TILE_COLUMNS + (threadIdx.x & 7);
        bool real = col < width;
        long long end = col < cols ? rows : 0;
        float value[ROUND], g[ROUND], sum = 0.0f;
        load_round(value, g, x, grad_out, lane, real ? end : 0, cols, col);
        Sigmoid s = sigmoid64(real ? (double)logit[col] : 0.0);
        float gate = (float)s.value, slope = (float)s.slope;
#pragma unroll 1
        for (long long row = lane; row < end; row += ROUND * ROW_LANES) {
#pragma unroll
            for (int k = 0; k < ROUND; ++k) {
                sum += g[k] * value[k];
                if (with_grad_in && row + k * ROW_LANES < end) {
                    grad_in[(row + k * ROW_LANES) * cols + col] = real ? gate * g[k] : 0.0f;
                }
            }
            load_round(value, g, x, grad_out, row + ROUND * ROW_LANES, real ? end : 0, cols, col);
        }
        float total = tile_column_sum(sum);
        if (threadIdx.x < TILE_COLUMNS && col < cols) {
            grad_logit[col] = real ? slope * (total + l1) : 0.0f;
        }
    }
}
