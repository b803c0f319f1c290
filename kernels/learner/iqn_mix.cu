// Features times level embeddings: a thread has one feature of one row, for all levels (iqn_mix.py).
#define ROUND 16  // levels whose loads are on their way at once; the bounds leave registers for them

extern "C" __global__ void __launch_bounds__(256, 4)
iqn_mix(const float* __restrict__ features, const float* __restrict__ phi, float* __restrict__ z,
        int rows, int quantiles, int hidden) {
    long long total = (long long)rows * hidden;
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < total;
         k += (long long)gridDim.x * blockDim.x) {
        long long row = k / hidden;
        long long at = row * quantiles * hidden + (k - row * hidden);
        const float* from = phi + at;
        float* to = z + at;
        float feature = features[k];
        int j = 0;
        for (; j + ROUND <= quantiles; j += ROUND) {
            float p[ROUND];
#pragma unroll
            for (int i = 0; i < ROUND; ++i, from += hidden) p[i] = *from;
#pragma unroll
            for (int i = 0; i < ROUND; ++i, to += hidden) *to = feature * (p[i] < 0.0f ? 0.0f : p[i]);
        }
#pragma unroll 1
        for (; j < quantiles; ++j, from += hidden, to += hidden) {
            float p = *from;
            *to = feature * (p < 0.0f ? 0.0f : p);
        }
    }
}
