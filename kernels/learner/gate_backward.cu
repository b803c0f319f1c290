// Gradients of the gate's logits and inputs, eight columns a block (gate_backward.py).
#include "learner/row_sums.cuh"
#include "learner/sigmoid.cuh"

extern "C" __global__ void gate_backward(const float* __restrict__ x, const float* __restrict__ logit,
                                         const float* __restrict__ grad_out,
                                         float* __restrict__ grad_logit, float* __restrict__ grad_in,
                                         int rows, int cols, int width, float l1, int with_grad_in) {
    int lane = threadIdx.x >> 3;
    for (long long tile = blockIdx.x; tile * TILE_COLUMNS < cols; tile += gridDim.x) {
        int col = (int)tile * TILE_COLUMNS + (threadIdx.x & 7);
        bool real = col < width;
        float gate = 0.0f, slope = 0.0f, sum = 0.0f;
        if (real) {
            Sigmoid s = sigmoid64((double)logit[col]);
            gate = (float)s.value;
            slope = (float)s.slope;
        }
        if (real || (with_grad_in && col < cols)) {
            for (long long row = lane; row < rows; row += ROW_LANES) {
                long long at = row * cols + col;
                float g = real ? grad_out[at] : 0.0f;
                if (real) sum += g * x[at];
                if (with_grad_in) grad_in[at] = real ? gate * g : 0.0f;
            }
        }
        float total = tile_column_sum(sum);
        if (threadIdx.x < TILE_COLUMNS && col < cols) {
            grad_logit[col] = real ? slope * (total + l1) : 0.0f;
        }
    }
}
