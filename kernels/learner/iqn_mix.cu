// Features times level embeddings: a thread has one feature of one row, for all levels (iqn_mix.py).
extern "C" __global__ void iqn_mix(const float* __restrict__ features, const float* __restrict__ phi,
                                   float* __restrict__ z, int rows, int quantiles, int hidden) {
    long long total = (long long)rows * hidden;
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < total;
         k += (long long)gridDim.x * blockDim.x) {
        long long row = k / hidden;
        long long at = row * quantiles * hidden + (k - row * hidden);
        float feature = features[k];
#pragma unroll 8
        for (int j = 0; j < quantiles; ++j) {
            z[at + (long long)j * hidden] = feature * phi[at + (long long)j * hidden];
        }
    }
}
