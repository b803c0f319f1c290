// Layer normalisation, a row a warp (layer_norm.py). All that is read of a row's first 256 columns is on
// its way before the first sum, and stays in registers; the launch bounds leave room for it.
#include "learner/layer_norm.cuh"

extern "C" __global__ void __launch_bounds__(128, 6)
layer_norm(const float* __restrict__ x, const float* __restrict__ scale,
           const float* __restrict__ shift, float* __restrict__ out, float* __restrict__ mean,
           float* __restrict__ rstd, int rows, int cols, float eps) {
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    for (long long row = blockIdx.x * (long long)warps + (threadIdx.x >> 5); row < rows;
         row += (long long)gridDim.x * warps) {
        const float* from = x + row * cols;
        float value[HELD], factor[HELD], term[HELD];
#pragma unroll
        for (int k = 0; k < HELD; ++k) {
            int j = lane + 32 * k;
            value[k] = j < cols ? from[j] : 0.0f;
            factor[k] = j < cols ? scale[j] : 0.0f;
            term[k] = j < cols ? shift[j] : 0.0f;
        }
        normalise_row(value, factor, term, from, scale, shift, out + row * cols, mean + row, rstd + row,
                      cols, eps);
    }
}
