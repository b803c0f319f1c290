// u^T W, 32 columns of a matrix a block (spectral_left.py): row r belongs to warp r mod 32, and a lane
// has a column.
#include "learner/spectral.cuh"

#define ROUND 8  // rows whose loads are on their way at once; the bounds leave registers for them

extern "C" __global__ void __launch_bounds__(1024, 1)
spectral_left(const float* __restrict__ params, const float* __restrict__ target,
              const long long* __restrict__ table, const float* __restrict__ vectors,
              float* __restrict__ raw, int count, int tiles) {
    __shared__ float partial[32][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
    for (long long unit = blockIdx.x; unit < (long long)count * tiles; unit += gridDim.x) {
        SpectralMatrix matrix = spectral_matrix(table, unit / tiles);
        const float* w = (matrix.source ? target : params) + matrix.offset;
        const float* u = vectors + matrix.vectors;
        float* raw_v = raw + matrix.vectors + matrix.rows;
        for (long long base = unit % tiles * 32; base < matrix.cols; base += (long long)tiles * 32) {
            long long col = base + tx;
            float sum = 0.0f;
            for (long long row = ty; row < matrix.rows; row += 32 * ROUND) {
                float weight[ROUND], x[ROUND];
#pragma unroll
                for (int k = 0; k < ROUND; ++k) {
                    bool in = row + 32 * k < matrix.rows;
                    weight[k] = in ? u[row + 32 * k] : 0.0f;
                    x[k] = in && col < matrix.cols ? w[(row + 32 * k) * matrix.cols + col] : 0.0f;
                }
#pragma unroll
                for (int k = 0; k < ROUND; ++k) sum += x[k] * weight[k];
            }
            partial[ty][tx] = sum;
            __syncthreads();
            sum = warp_sum(partial[tx][ty]);
            if (tx == 0 && base + ty < matrix.cols) raw_v[base + ty] = sum;
            __syncthreads();
        }
    }
}
