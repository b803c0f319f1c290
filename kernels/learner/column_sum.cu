// A block of 256 threads adds eight columns: a memory sector of each row (column_sum.py). The loads of
// a round stand before its additions, so that a thread has all of them on their way at once. The second
// of the launch bounds is what makes the compiler spend registers on that.
#include "learner/row_sums.cuh"

#define SUM_LANES 128u
#define VECTORS 16  // float4 of a round
#define SINGLES 32  // float of a round

extern "C" __global__ void __launch_bounds__(256, 2)
column_sum(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
    __shared__ float4 lanes[2 * SUM_LANES];
    int t = threadIdx.x;
    unsigned int n = rows < 0 ? 0 : rows;
    bool vectors = (cols & 3) == 0 && ((unsigned long long)x & 15) == 0;
    for (long long tile = blockIdx.x; tile * TILE_COLUMNS < cols; tile += gridDim.x) {
        float value = 0.0f;  // the sum of lanes t / 8, t / 8 + 32, ... of column t % 8
        if (vectors) {
            long long col = tile * TILE_COLUMNS + (t & 1) * 4;
            unsigned int end = col < cols ? n : 0, lane = t >> 1;
            const float4* at = reinterpret_cast<const float4*>(x + lane * (long long)cols + col);
            long long step = SUM_LANES * (long long)(cols / 4);
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            for (unsigned int row = lane; row < end; row += VECTORS * SUM_LANES) {
                float4 v[VECTORS];
#pragma unroll
                for (int k = 0; k < VECTORS; ++k, at += step) {
                    v[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    if (row + k * SUM_LANES < end) v[k] = *at;
                }
#pragma unroll
                for (int k = 0; k < VECTORS; ++k) {
                    sum.x += v[k].x;
                    sum.y += v[k].y;
                    sum.z += v[k].z;
                    sum.w += v[k].w;
                }
            }
            lanes[t] = sum;
            __syncthreads();
            const float* each = reinterpret_cast<const float*>(lanes);
#pragma unroll
            for (int k = 0; k < 4; ++k) value += each[t + 256 * k];
        } else {
            long long col = tile * TILE_COLUMNS + (t & 7);
            unsigned int end = col < cols ? n : 0, lane = t >> 3;
            const float* at = x + lane * (long long)cols + col;
            long long step = 32 * (long long)cols;
            float sum[4] = {};
            for (unsigned int row = lane; row < end; row += SINGLES * 32) {
                float v[SINGLES];
#pragma unroll
                for (int k = 0; k < SINGLES; ++k, at += step) {
                    v[k] = 0.0f;
                    if (row + k * 32 < end) v[k] = *at;
                }
#pragma unroll
                for (int k = 0; k < SINGLES; ++k) sum[k & 3] += v[k];
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) value += sum[k];
        }
        float total = tile_column_sum(value);
        long long col = tile * TILE_COLUMNS + t;
        if (t < TILE_COLUMNS && col < cols) out[col] = total;
    }
}
