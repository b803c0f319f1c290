// u and sigma from W v, and normalised weights, a chunk of a matrix a block (spectral_scale.py). Every
// block forms sigma for itself; the one with a matrix' first chunk writes it, and u.
#include "learner/spectral.cuh"

#define ROUND 4         // elements that a thread has on their way at once
#define CHUNK (4 * LANES)  // elements of u that stand in shared memory

extern "C" __global__ void __launch_bounds__(LANES, 4)
spectral_scale(const float* __restrict__ params, const float* __restrict__ target,
               const long long* __restrict__ table, float* vectors, const float* __restrict__ raw,
               double* __restrict__ sigma, float* __restrict__ normal,
               float* __restrict__ normal_target, int count, int parts, int iterate, double cap) {
    __shared__ double products[CHUNK], found[2];  // the norm, sigma
    for (long long unit = blockIdx.x; unit < (long long)count * parts; unit += gridDim.x) {
        long long which = unit / parts, part = unit % parts;
        SpectralMatrix matrix = spectral_matrix(table, which);
        const float* w = (matrix.source ? target : params) + matrix.offset;
        float* out = (matrix.source ? normal_target : normal) + matrix.offset;
        float* kept = vectors + matrix.vectors;
        const float* raw_u = raw + matrix.vectors;
        long long n = matrix.rows * matrix.cols, chunk = chunk_size(n, parts);
        long long first = part * chunk, end = first + chunk < n ? first + chunk : n;
        float x[ROUND];  // the first weights are on their way while sigma is formed
#pragma unroll
        for (int k = 0; k < ROUND; ++k) {
            long long i = first + threadIdx.x + k * LANES;
            x[k] = i < end ? w[i] : 0.0f;
        }

        if (threadIdx.x < 32) {
            double norm = iterate ? norm_of(raw_u, matrix.rows) : 0.0;
            if (threadIdx.x == 0) found[0] = norm;
        }
        double sum = 0.0;
#pragma unroll 1
        for (long long base = 0; base < matrix.rows; base += CHUNK) {
            int rows = (int)(matrix.rows - base < CHUNK ? matrix.rows - base : CHUNK);
            __syncthreads();  // the norm is there, the last chunk done with
            double norm = found[0];
            bool turns = isfinite(norm) && norm > 0.0;
#pragma unroll 1
            for (int i = threadIdx.x; i < rows; i += LANES) {
                double reached = (double)raw_u[base + i];
                float u = turns ? (float)(reached / norm) : kept[base + i];
                products[i] = (double)u * reached;
                // Where it is written no block reads it.
                if (turns && part == 0) kept[base + i] = u;
            }
            __syncthreads();
            if (threadIdx.x < 32) {
                for (int i = threadIdx.x; i < rows; i += 32) sum += products[i];
            }
        }
        if (threadIdx.x < 32) {
            sum = warp_sum(sum);
            if (threadIdx.x == 0) {
                found[1] = sum;
                if (part == 0) sigma[which] = sum;
            }
        }
        __syncthreads();
        double s = found[1];
        float scale = above_cap(s, cap) ? (float)(cap / s) : 1.0f;
#pragma unroll 1
        for (long long base = first + threadIdx.x; base < end; base += ROUND * LANES) {
#pragma unroll
            for (int k = 0; k < ROUND; ++k) {
                if (base + k * LANES < end) out[base + k * LANES] = x[k] * scale;
            }
#pragma unroll
            for (int k = 0; k < ROUND; ++k) {
                long long i = base + (ROUND + k) * LANES;
                x[k] = i < end ? w[i] : 0.0f;
            }
        }
        __syncthreads();  // sigma is read, before another takes its place
    }
}
