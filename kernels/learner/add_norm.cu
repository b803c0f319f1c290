// A residual block's sum and the normalisation that follows it, a row a warp (add_norm.py). All that is
// read of a row's first 256 columns is on its way before the first sum; the sums behind them go through
// `total`, where each lane reads what it has written itself.
#include "learner/layer_norm.cuh"
#include "learner/scaled.cuh"

extern "C" __global__ void __launch_bounds__(128, 6)
add_norm(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ depth,
         float* __restrict__ total, const float* __restrict__ scale, const float* __restrict__ shift,
         float* __restrict__ out, float* __restrict__ mean, float* __restrict__ rstd, int rows,
         int cols, float eps, int scaled) {
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    float by = scaled ? depth[0] : 1.0f;
    for (long long row = blockIdx.x * (long long)warps + (threadIdx.x >> 5); row < rows;
         row += (long long)gridDim.x * warps) {
        const float *a_row = a + row * cols, *b_row = b + row * cols;
        float* sums = total + row * cols;
        float value[HELD], branch[HELD], factor[HELD], term[HELD];
#pragma unroll
        for (int k = 0; k < HELD; ++k) {
            int j = lane + 32 * k;
            bool in = j < cols;
            value[k] = in ? a_row[j] : 0.0f;
            branch[k] = in ? b_row[j] : 0.0f;
            factor[k] = in ? scale[j] : 0.0f;
            term[k] = in ? shift[j] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < HELD; ++k) {
            int j = lane + 32 * k;
            value[k] = scaled_sum(value[k], branch[k], by);
            if (j < cols) sums[j] = value[k];
        }
#pragma unroll 1
        for (int j = lane + 32 * HELD; j < cols; j += 32) sums[j] = scaled_sum(a_row[j], b_row[j], by);
        normalise_row(value, factor, term, sums, scale, shift, out + row * cols, mean + row, rstd + row,
                      cols, eps);
    }
}
