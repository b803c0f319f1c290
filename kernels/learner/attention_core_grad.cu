// The gradient of attention, a row and head a warp (attention_core_grad.py). Each lane takes whole
// sums, so that their order is that of the indices.
extern "C" __global__ void attention_core_grad(const float* __restrict__ qkv,
                                               const float* __restrict__ prob,
                                               const float* __restrict__ grad_out, float* slope,
                                               float* __restrict__ grad_qkv, int rows, int groups,
                                               int width, int heads, float scale) {
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5, each = width / heads, token = 3 * width;
    for (long long unit = blockIdx.x * (long long)warps + (threadIdx.x >> 5);
         unit < (long long)rows * heads; unit += (long long)gridDim.x * warps) {
        long long row = unit / heads;
        int first = (int)(unit % heads) * each;
        const float* q = qkv + row * groups * token + first;
        const float* k = q + width;
        const float* v = k + width;
        const float* g = grad_out + row * groups * width + first;
        const float* p = prob + unit * groups * groups;
        float* s = slope + unit * groups * groups;
        float* grad = grad_qkv + row * groups * token + first;

        for (int pair = lane; pair < groups * groups; pair += 32) {
            const float* gi = g + pair / groups * width;
            const float* vj = v + pair % groups * token;
            float sum = 0.0f;
            for (int c = 0; c < each; ++c) sum += gi[c] * vj[c];
            s[pair] = sum;
        }
        __syncwarp();
        for (int i = lane; i < groups; i += 32) {
            float mix = 0.0f;
            for (int j = 0; j < groups; ++j) mix += p[i * groups + j] * s[i * groups + j];
            for (int j = 0; j < groups; ++j) {
                int at = i * groups + j;
                s[at] = (p[at] * (s[at] - mix)) * scale;
            }
        }
        __syncwarp();
        for (int pair = lane; pair < groups * each; pair += 32) {
            int i = pair / each, c = pair % each;
            float of_q = 0.0f, of_k = 0.0f, of_v = 0.0f;
            for (int j = 0; j < groups; ++j) {
                of_q += s[i * groups + j] * k[j * token + c];
                of_k += s[j * groups + i] * q[j * token + c];
                of_v += p[j * groups + i] * g[j * width + c];
            }
            float* to = grad + i * token + c;
            to[0] = of_q;
            to[width] = of_k;
            to[2 * width] = of_v;
        }
    }
}
