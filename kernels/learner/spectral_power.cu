// A power iteration and the largest singular value of a matrix a block (spectral_power.py).
#include "learner/spectral.cuh"

#define POWER_THREADS 1024
#define POWER_COLUMNS 128

// The norm of x, which every warp forms for itself.
__device__ inline double norm_of(const float* x, long long n) {
    double sum = 0.0;
    for (long long i = threadIdx.x & 31; i < n; i += 32) sum += (double)x[i] * (double)x[i];
    return sqrt(warp_sum(sum));
}

__device__ inline void normalise(float* kept, const float* raw, long long n) {
    double norm = norm_of(raw, n);
    if (!isfinite(norm) || !(norm > 0.0)) return;
    for (long long i = threadIdx.x; i < n; i += POWER_THREADS) kept[i] = (float)((double)raw[i] / norm);
}

extern "C" __global__ void __launch_bounds__(POWER_THREADS)
spectral_power(const float* __restrict__ params, const float* __restrict__ target,
               const long long* __restrict__ table, float* __restrict__ vectors,
               float* __restrict__ raw, double* __restrict__ sigma, int count, int iterate) {
    __shared__ float partial[32][POWER_COLUMNS + 1];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
    for (long long which = blockIdx.x; which < count; which += gridDim.x) {
        SpectralMatrix matrix = spectral_matrix(table, which);
        long long rows = matrix.rows, cols = matrix.cols;
        const float* w = (matrix.source ? target : params) + matrix.offset;
        float *u = vectors + matrix.vectors, *v = u + rows;
        float *raw_u = raw + matrix.vectors, *raw_v = raw_u + rows;

        // W^T u: row r belongs to warp r mod 32, a lane has every 32nd column.
        for (long long base = 0; iterate && base < cols; base += POWER_COLUMNS) {
            float sums[POWER_COLUMNS / 32] = {};
#pragma unroll 4
            for (long long row = ty; row < rows; row += 32) {
                const float* at = w + row * cols;
                float weight = u[row];
#pragma unroll
                for (int k = 0; k < POWER_COLUMNS / 32; ++k) {
                    long long col = base + tx + 32 * k;
                    if (col < cols) sums[k] += at[col] * weight;
                }
            }
            for (int k = 0; k < POWER_COLUMNS / 32; ++k) partial[ty][tx + 32 * k] = sums[k];
            __syncthreads();
            for (int k = 0; k < POWER_COLUMNS / 32; ++k) {
                int col = ty + 32 * k;
                float sum = warp_sum(partial[tx][col]);
                if (tx == 0 && base + col < cols) raw_v[base + col] = sum;
            }
            __syncthreads();
        }
        if (iterate) normalise(v, raw_v, cols);
        __syncthreads();

        // W v: a row a warp.
        for (long long row = ty; row < rows; row += 32) {
            const float* at = w + row * cols;
            float sum = 0.0f;
#pragma unroll 4
            for (long long col = tx; col < cols; col += 32) sum += at[col] * v[col];
            sum = warp_sum(sum);
            if (tx == 0) raw_u[row] = sum;
        }
        __syncthreads();
        if (iterate) normalise(u, raw_u, rows);
        __syncthreads();

        if (ty == 0) {
            double sum = 0.0;
            for (long long row = tx; row < rows; row += 32) sum += (double)u[row] * (double)raw_u[row];
            sum = warp_sum(sum);
            if (tx == 0) sigma[which] = sum;
        }
    }
}
