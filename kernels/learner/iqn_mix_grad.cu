// Gradient of features times level embeddings: a thread has one feature of one row, for all levels
// (iqn_mix_grad.py).
extern "C" __global__ void iqn_mix_grad(const float* __restrict__ features,
                                        const float* __restrict__ phi,
                                        const float* __restrict__ grad_z,
                                        float* __restrict__ grad_phi,
                                        float* __restrict__ grad_features, int rows, int quantiles,
                                        int hidden, int add) {
    long long total = (long long)rows * hidden;
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < total;
         k += (long long)gridDim.x * blockDim.x) {
        long long row = k / hidden;
        long long at = row * quantiles * hidden + (k - row * hidden);
        float feature = features[k], sum = 0.0f;
#pragma unroll 8
        for (int j = 0; j < quantiles; ++j) {
            long long e = at + (long long)j * hidden;
            float p = phi[e], g = grad_z[e];
            grad_phi[e] = p > 0.0f ? g * feature : 0.0f;
            sum += g * p;
        }
        grad_features[k] = (add ? grad_features[k] : 0.0f) + sum;
    }
}
