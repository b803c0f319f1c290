// Scaled dot-product attention, a row and head a warp (attention_core.py). Each lane takes whole
// sums, so that their order is that of the indices. What the warp works on stands in shared memory
// where it fits, else where it came from: a loop of sums reads each of its terms many times.
#include "common/detmath.cuh"
#include "learner/attention.cuh"

#define MAX_GROUPS 64
#define TOKENS 1536  // floats that a warp keeps of queries, keys and values,
#define PAIRS 1024   // and of scores

extern "C" __global__ void __launch_bounds__(32 * ATTENTION_WARPS, 12)
attention_core(const float* __restrict__ qkv, float* __restrict__ out, float* prob, int rows,
               int groups, int width, int heads, float scale) {
    __shared__ float token_tile[ATTENTION_WARPS][TOKENS], pair_tile[ATTENTION_WARPS][PAIRS];
    __shared__ float tops[ATTENTION_WARPS][MAX_GROUPS], sums[ATTENTION_WARPS][MAX_GROUPS];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned int n = groups, each = width / heads, pairs = n * n;
    unsigned int stride = 3 * each | 1;  // odd: the same element of all tokens in banks of its own
    bool near = n * stride <= TOKENS && pairs <= PAIRS;
    float *top = tops[warp], *sum_of = sums[warp];
    for (long long unit = blockIdx.x * (long long)ATTENTION_WARPS + warp; unit < (long long)rows * heads;
         unit += (long long)gridDim.x * ATTENTION_WARPS) {
        long long row = unit / heads;
        int first = (int)(unit % heads) * each;
        const float* from = qkv + row * n * 3 * width + first;
        float *kept = prob + unit * pairs, *p = near ? pair_tile[warp] : kept;
        const float* q = near ? token_tile[warp] : from;
        unsigned int token = near ? stride : 3 * width, part = near ? each : width;
        if (near) {
            copy_tile<3>(token_tile[warp], from, 3 * n, each, width, stride);
            tiles_copied();
        }
        const float *k = q + part, *v = k + part;

#pragma unroll 1
        for (unsigned int pair = lane; pair < pairs; pair += 32) {
            const float *qi = q + pair / n * token, *kj = k + pair % n * token;
            float sum = 0.0f;
#pragma unroll 4
            for (unsigned int c = 0; c < each; ++c) sum += qi[c] * kj[c];
            p[pair] = sum * scale;
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned int i = lane; i < n; i += 32) {
            float most = __int_as_float(0xff800000);
#pragma unroll 4
            for (unsigned int j = 0; j < n; ++j) most = fmaxf(most, p[i * n + j]);
            top[i] = most;
        }
        __syncwarp();
        // The exponentials, which cost most, are spread over the warp whatever G is.
#pragma unroll 1
        for (unsigned int pair = lane; pair < pairs; pair += 32) {
            p[pair] = (float)det_exp((double)(p[pair] - top[pair / n]));
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned int i = lane; i < n; i += 32) {
            float sum = 0.0f;
#pragma unroll 4
            for (unsigned int j = 0; j < n; ++j) sum += p[i * n + j];
            sum_of[i] = sum;
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned int pair = lane; pair < pairs; pair += 32) {
            float share = p[pair] / sum_of[pair / n];
            p[pair] = share;
            if (near) kept[pair] = share;
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned int pair = lane; pair < n * each; pair += 32) {
            unsigned int i = pair / each, c = pair % each;
            float sum = 0.0f;
#pragma unroll 4
            for (unsigned int j = 0; j < n; ++j) sum += p[i * n + j] * v[j * token + c];
            out[(row * n + i) * width + first + c] = sum;
        }
        __syncwarp();
    }
}
