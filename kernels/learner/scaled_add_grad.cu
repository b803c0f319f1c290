// A gradient times a scale from device memory (scaled_add_grad.py), in 16-byte accesses where both
// arrays stand on such.
#include "learner/scaled.cuh"

extern "C" __global__ void scaled_add_grad(const float* __restrict__ grad_out,
                                           const float* __restrict__ scale,
                                           float* __restrict__ grad_b, long long n) {
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long threads = (long long)gridDim.x * blockDim.x;
    bool vectors = (((unsigned long long)grad_out | (unsigned long long)grad_b) & 15) == 0;
    long long quads = vectors ? n / 4 : 0;
    float factor = scale[0];
#pragma unroll 1
    for (long long i = first; i < quads; i += threads) {
        float4 g = reinterpret_cast<const float4*>(grad_out)[i];
        reinterpret_cast<float4*>(grad_b)[i] =
            make_float4(scaled_by(g.x, factor), scaled_by(g.y, factor), scaled_by(g.z, factor),
                        scaled_by(g.w, factor));
    }
#pragma unroll 1
    for (long long i = 4 * quads + first; i < n; i += threads) {
        float g = grad_out[i];
        grad_b[i] = scaled_by(g, factor);
    }
}
