// The gradient of attention, a row and head a warp (attention_core_grad.py). Each lane takes whole
// sums, so that their order is that of the indices. What the warp works on stands in shared memory
// where it fits, else where it came from.
#include "learner/attention.cuh"

#define TOKENS 1536  // floats that a warp keeps of queries, keys and values,
#define PAIRS 1024   // of probabilities, and of slopes,
#define GRADS 544    // and of the gradient in the output

extern "C" __global__ void __launch_bounds__(32 * ATTENTION_WARPS, 6)
attention_core_grad(const float* __restrict__ qkv, const float* __restrict__ prob,
                    const float* __restrict__ grad_out, float* slope, float* __restrict__ grad_qkv,
                    int rows, int groups, int width, int heads, float scale) {
    __shared__ float token_tile[ATTENTION_WARPS][TOKENS], prob_tile[ATTENTION_WARPS][PAIRS];
    __shared__ float slope_tile[ATTENTION_WARPS][PAIRS], grad_tile[ATTENTION_WARPS][GRADS];
    __shared__ float mixes[ATTENTION_WARPS][64];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned int n = groups, each = width / heads, pairs = n * n;
    unsigned int stride = 3 * each | 1, grad_stride = each | 1;  // odd: tokens in banks of their own
    bool near = n * stride <= TOKENS && n * grad_stride <= GRADS && pairs <= PAIRS;
    float* mix_of = mixes[warp];
    for (long long unit = blockIdx.x * (long long)ATTENTION_WARPS + warp;
         unit < (long long)rows * heads; unit += (long long)gridDim.x * ATTENTION_WARPS) {
        long long row = unit / heads;
        int first = (int)(unit % heads) * each;
        const float* q = qkv + row * n * 3 * width + first;
        const float* g = grad_out + row * n * width + first;
        const float* p = prob + unit * pairs;
        float *kept = slope + unit * pairs, *s = near ? slope_tile[warp] : kept;
        float* to = grad_qkv + row * n * 3 * width + first;
        unsigned int token = 3 * width, part = width, grad_token = width;
        if (near) {
            copy_tile<3>(token_tile[warp], q, 3 * n, each, width, stride);
            copy_tile<1>(grad_tile[warp], g, n, each, width, grad_stride);
            copy_tile<1>(prob_tile[warp], p, n, n, n, n);
            tiles_copied();
            q = token_tile[warp];
            g = grad_tile[warp];
            p = prob_tile[warp];
            token = stride;
            part = each;
            grad_token = grad_stride;
        }
        const float *k = q + part, *v = k + part;

#pragma unroll 1
        for (unsigned int pair = lane; pair < pairs; pair += 32) {
            const float *gi = g + pair / n * grad_token, *vj = v + pair % n * token;
            float sum = 0.0f;
#pragma unroll 4
            for (unsigned int c = 0; c < each; ++c) sum += gi[c] * vj[c];
            s[pair] = sum;
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned int i = lane; i < n; i += 32) {
            float mix = 0.0f;
#pragma unroll 4
            for (unsigned int j = 0; j < n; ++j) mix += p[i * n + j] * s[i * n + j];
            mix_of[i] = mix;
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned int pair = lane; pair < pairs; pair += 32) {
            float of_score = (p[pair] * (s[pair] - mix_of[pair / n])) * scale;
            s[pair] = of_score;
            if (near) kept[pair] = of_score;
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned int pair = lane; pair < n * each; pair += 32) {
            unsigned int i = pair / each, c = pair % each;
            float of_q = 0.0f, of_k = 0.0f, of_v = 0.0f;
#pragma unroll 4
            for (unsigned int j = 0; j < n; ++j) {
                of_q += s[i * n + j] * k[j * token + c];
                of_k += s[j * n + i] * q[j * token + c];
                of_v += p[j * n + i] * g[j * grad_token + c];
            }
            float* at = to + i * 3 * width + c;
            at[0] = of_q;
            at[width] = of_k;
            at[2 * width] = of_v;
        }
        __syncwarp();
    }
}
