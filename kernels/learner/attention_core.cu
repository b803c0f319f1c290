// Scaled dot-product attention, a row and head a warp (attention_core.py). Each lane takes whole
// sums, so that their order is that of the indices; the probabilities' buffer is the warp's scratch.
#include "common/detmath.cuh"

extern "C" __global__ void attention_core(const float* __restrict__ qkv, float* __restrict__ out,
                                          float* prob, int rows, int groups, int width, int heads,
                                          float scale) {
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5, each = width / heads, token = 3 * width;
    for (long long unit = blockIdx.x * (long long)warps + (threadIdx.x >> 5);
         unit < (long long)rows * heads; unit += (long long)gridDim.x * warps) {
        long long row = unit / heads;
        int first = (int)(unit % heads) * each;
        const float* q = qkv + row * groups * token + first;
        const float* k = q + width;
        const float* v = k + width;
        float* p = prob + unit * groups * groups;

        for (int pair = lane; pair < groups * groups; pair += 32) {
            const float* qi = q + pair / groups * token;
            const float* kj = k + pair % groups * token;
            float sum = 0.0f;
            for (int c = 0; c < each; ++c) sum += qi[c] * kj[c];
            p[pair] = sum * scale;
        }
        __syncwarp();
        float top[2];  // of queries lane and lane + 32
        for (int half = 0; half < 2; ++half) {
            int i = lane + 32 * half;
            top[half] = __int_as_float(0xff800000);
            if (i < groups) {
                for (int j = 0; j < groups; ++j) top[half] = fmaxf(top[half], p[i * groups + j]);
            }
        }
        __syncwarp();
        // The exponentials, which cost most, are spread over the warp whatever G is.
        for (int from = 0; from < groups * groups; from += 32) {
            int pair = from + lane, i = pair / groups;
            float low = __shfl_sync(0xffffffffu, top[0], i & 31);
            float high = __shfl_sync(0xffffffffu, top[1], i & 31);
            if (pair < groups * groups) {
                p[pair] = (float)det_exp((double)(p[pair] - (i < 32 ? low : high)));
            }
        }
        __syncwarp();
        for (int i = lane; i < groups; i += 32) {
            float sum = 0.0f;
            for (int j = 0; j < groups; ++j) sum += p[i * groups + j];
            for (int j = 0; j < groups; ++j) p[i * groups + j] /= sum;
        }
        __syncwarp();
        for (int pair = lane; pair < groups * each; pair += 32) {
            int i = pair / each, c = pair % each;
            float sum = 0.0f;
            for (int j = 0; j < groups; ++j) sum += p[i * groups + j] * v[j * token + c];
            out[(row * groups + i) * width + first + c] = sum;
        }
    }
}
