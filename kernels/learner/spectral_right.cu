// v from u^T W and then W v, eight rows of a matrix a block, a row a warp (spectral_right.py). Every
// block forms the norm and what it needs of v for itself.
#include "learner/spectral.cuh"

#define ROUND 8           // elements of a row that a lane has on their way at once
#define CHUNK (8 * LANES)  // elements of v that stand in shared memory

extern "C" __global__ void __launch_bounds__(LANES, 4)
spectral_right(const float* __restrict__ params, const float* __restrict__ target,
               const long long* __restrict__ table, float* vectors, float* raw, int count, int tiles,
               int iterate) {
    __shared__ float v[CHUNK];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (long long unit = blockIdx.x; unit < (long long)count * tiles; unit += gridDim.x) {
        SpectralMatrix matrix = spectral_matrix(table, unit / tiles);
        long long rows = matrix.rows, cols = matrix.cols, tile = unit % tiles;
        const float* w = (matrix.source ? target : params) + matrix.offset;
        float *kept = vectors + matrix.vectors + rows, *raw_u = raw + matrix.vectors;
        const float* raw_v = raw_u + rows;
        double norm = iterate ? norm_of(raw_v, cols) : 0.0;
        bool turns = isfinite(norm) && norm > 0.0;
#pragma unroll 1
        for (long long base = tile * 8; base < rows; base += (long long)tiles * 8) {
            long long row = base + warp;
            float sum = 0.0f;
#pragma unroll 1
            for (long long chunk = 0; chunk < cols; chunk += CHUNK) {
                int n = (int)(cols - chunk < CHUNK ? cols - chunk : CHUNK);
                __syncthreads();  // the last chunk is done with
#pragma unroll 1
                for (int i = threadIdx.x; i < n; i += LANES) {
                    float x = turns ? (float)((double)raw_v[chunk + i] / norm) : kept[chunk + i];
                    v[i] = x;
                    // Where it is written no block reads it.
                    if (turns && base == 0) kept[chunk + i] = x;
                }
                __syncthreads();
                const float* at = w + row * cols + chunk;
#pragma unroll 1
                for (int i = lane; i < n && row < rows; i += 32 * ROUND) {
                    float x[ROUND];
#pragma unroll
                    for (int k = 0; k < ROUND; ++k) x[k] = i + 32 * k < n ? at[i + 32 * k] : 0.0f;
#pragma unroll
                    for (int k = 0; k < ROUND; ++k) {
                        if (i + 32 * k < n) sum += x[k] * v[i + 32 * k];
                    }
                }
            }
            sum = warp_sum(sum);
            if (lane == 0 && row < rows) raw_u[row] = sum;
        }
    }
}
