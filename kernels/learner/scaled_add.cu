// A sum with a scale from device memory (scaled_add.py), in 16-byte accesses where all arrays stand on
// such.
#include "learner/scaled.cuh"

extern "C" __global__ void scaled_add(const float* __restrict__ a, const float* __restrict__ b,
                                      const float* __restrict__ scale, float* __restrict__ out,
                                      long long n, int scaled) {
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long threads = (long long)gridDim.x * blockDim.x;
    unsigned long long where =
        (unsigned long long)a | (unsigned long long)b | (unsigned long long)out;
    long long quads = (where & 15) == 0 ? n / 4 : 0;
    float factor = scaled ? scale[0] : 1.0f;
#pragma unroll 1
    for (long long i = first; i < quads; i += threads) {
        float4 x = reinterpret_cast<const float4*>(a)[i], y = reinterpret_cast<const float4*>(b)[i];
        reinterpret_cast<float4*>(out)[i] =
            make_float4(scaled_sum(x.x, y.x, factor), scaled_sum(x.y, y.y, factor),
                        scaled_sum(x.z, y.z, factor), scaled_sum(x.w, y.w, factor));
    }
#pragma unroll 1
    for (long long i = 4 * quads + first; i < n; i += threads) {
        float x = a[i], y = b[i];
        out[i] = scaled_sum(x, y, factor);
    }
}
