// Gradients of layer normalisation: blocks of eight rows, then of eight columns (layer_norm_grad.py).
// What is read of a row's first 256 columns, or of 256 rows of a column, is on its way before the first
// sum; the launch bounds leave registers for it.
#include "learner/row_sums.cuh"
#include "learner/scaled.cuh"

#define HELD 8

extern "C" __global__ void __launch_bounds__(256, 2) layer_norm_grad(
    const float* __restrict__ x, const float* __restrict__ mean, const float* __restrict__ rstd,
    const float* __restrict__ scale, const float* __restrict__ grad_out,
    const float* __restrict__ residual, const float* __restrict__ depth,
    float* __restrict__ grad_in, float* __restrict__ grad_branch, float* __restrict__ grad_scale,
    float* __restrict__ grad_shift, int rows, int cols, int tiles, int with_residual, int after_relu,
    int with_branch) {
    long long row_tiles = ((long long)rows + 7) / 8;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        if (tile < row_tiles) {
            int lane = threadIdx.x & 31;
            long long row = tile * 8 + (threadIdx.x >> 5);
            if (row >= rows) continue;
            const float *x_row = x + row * cols, *g_row = grad_out + row * cols;
            float m = mean[row], r = rstd[row], first = 0.0f, second = 0.0f;
            float by = with_branch ? depth[0] : 0.0f;
            float value[HELD], scaled[HELD], skip[HELD];
#pragma unroll
            for (int k = 0; k < HELD; ++k) {
                int j = lane + 32 * k;
                bool in = j < cols;
                value[k] = in ? x_row[j] : 0.0f;
                scaled[k] = in ? g_row[j] * scale[j] : 0.0f;
                skip[k] = in && with_residual ? residual[row * cols + j] : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < HELD; ++k) {
                if (lane + 32 * k < cols) {
                    first += scaled[k];
                    second += scaled[k] * ((value[k] - m) * r);
                }
            }
#pragma unroll 1
            for (int j = lane + 32 * HELD; j < cols; j += 32) {
                float here = g_row[j] * scale[j];
                first += here;
                second += here * ((x_row[j] - m) * r);
            }
            first = warp_sum(first) / (float)cols;
            second = warp_sum(second) / (float)cols;
#pragma unroll
            for (int k = 0; k < HELD; ++k) {
                float g = r * ((scaled[k] - first) - ((value[k] - m) * r) * second);
                if (with_residual) g += skip[k];
                if (after_relu && !(value[k] > 0.0f)) g = 0.0f;
                if (lane + 32 * k < cols) {
                    grad_in[row * cols + lane + 32 * k] = g;
                    if (with_branch) grad_branch[row * cols + lane + 32 * k] = scaled_by(g, by);
                }
            }
#pragma unroll 1
            for (int j = lane + 32 * HELD; j < cols; j += 32) {
                float here = x_row[j];
                float g = r * ((g_row[j] * scale[j] - first) - ((here - m) * r) * second);
                if (with_residual) g += residual[row * cols + j];
                if (after_relu && !(here > 0.0f)) g = 0.0f;
                grad_in[row * cols + j] = g;
                if (with_branch) grad_branch[row * cols + j] = scaled_by(g, by);
            }
        } else {
            long long col = (tile - row_tiles) * TILE_COLUMNS + (threadIdx.x & 7);
            float of_scale = 0.0f, of_shift = 0.0f;
            if (col < cols) {
                for (long long base = threadIdx.x >> 3; base < rows; base += HELD * ROW_LANES) {
                    float value[HELD], g[HELD], m[HELD], r[HELD];
#pragma unroll
                    for (int k = 0; k < HELD; ++k) {
                        long long row = base + k * ROW_LANES;
                        bool in = row < rows;
                        value[k] = in ? x[row * cols + col] : 0.0f;
                        g[k] = in ? grad_out[row * cols + col] : 0.0f;
                        m[k] = in ? mean[row] : 0.0f;
                        r[k] = in ? rstd[row] : 0.0f;
                    }
#pragma unroll
                    for (int k = 0; k < HELD; ++k) {
                        of_scale += g[k] * ((value[k] - m[k]) * r[k]);
                        of_shift += g[k];
                    }
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
