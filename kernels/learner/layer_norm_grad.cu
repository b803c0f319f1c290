// Gradients of layer normalisation: blocks of eight rows, then of eight columns (layer_norm_grad.py).
#include "learner/row_sums.cuh"

extern "C" __global__ void layer_norm_grad(
    const float* __restrict__ x, const float* __restrict__ mean, const float* __restrict__ rstd,
    const float* __restrict__ scale, const float* __restrict__ grad_out,
    const float* __restrict__ residual, float* __restrict__ grad_in, float* __restrict__ grad_scale,
    float* __restrict__ grad_shift, int rows, int cols, int tiles, int with_residual,
    int after_relu) {
    long long row_tiles = ((long long)rows + 7) / 8;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        if (tile < row_tiles) {
            int lane = threadIdx.x & 31;
            long long row = tile * 8 + (threadIdx.x >> 5);
            if (row >= rows) continue;
            float m = mean[row], r = rstd[row], first = 0.0f, second = 0.0f;
            for (int j = lane; j < cols; j += 32) {
                float scaled = grad_out[row * cols + j] * scale[j];
                first += scaled;
                second += scaled * ((x[row * cols + j] - m) * r);
            }
            first = warp_sum(first) / (float)cols;
            second = warp_sum(second) / (float)cols;
            for (int j = lane; j < cols; j += 32) {
                long long at = row * cols + j;
                float h = (x[at] - m) * r;
                float g = r * ((grad_out[at] * scale[j] - first) - h * second);
                if (with_residual) g += residual[at];
                grad_in[at] = after_relu && !(x[at] > 0.0f) ? 0.0f : g;
            }
        } else {
            long long col = (tile - row_tiles) * TILE_COLUMNS + (threadIdx.x & 7);
            float of_scale = 0.0f, of_shift = 0.0f;
            if (col < cols) {
                for (long long row = threadIdx.x >> 3; row < rows; row += ROW_LANES) {
                    long long at = row * cols + col;
                    float g = grad_out[at];
                    of_scale += g * ((x[at] - mean[row]) * rstd[row]);
                    of_shift += g;
                }
            }
            of_scale = tile_column_sum(of_scale);
            of_shift = tile_column_sum(of_shift);
            if (threadIdx.x < TILE_COLUMNS && col < cols) {
                grad_scale[col] = of_scale;
                grad_shift[col] = of_shift;
            }
        }
    }
}
