// Layer normalisation, a row a warp (layer_norm.py).
#include "learner/row_sums.cuh"

extern "C" __global__ void layer_norm(const float* __restrict__ x, const float* __restrict__ scale,
                                      const float* __restrict__ shift, float* __restrict__ out,
                                      float* __restrict__ mean, float* __restrict__ rstd, int rows,
                                      int cols, float eps) {
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    for (long long row = blockIdx.x * (long long)warps + (threadIdx.x >> 5); row < rows;
         row += (long long)gridDim.x * warps) {
        const float* from = x + row * cols;
        float sum = 0.0f;
        for (int j = lane; j < cols; j += 32) sum += from[j];
        float m = warp_sum(sum) / (float)cols;
        float squares = 0.0f;
        for (int j = lane; j < cols; j += 32) {
            float d = from[j] - m;
            squares += d * d;
        }
        float r = 1.0f / sqrtf(warp_sum(squares) / (float)cols + eps);
        for (int j = lane; j < cols; j += 32) {
            out[row * cols + j] = ((from[j] - m) * r) * scale[j] + shift[j];
        }
        if (lane == 0) {
            mean[row] = m;
            rstd[row] = r;
        }
    }
}
