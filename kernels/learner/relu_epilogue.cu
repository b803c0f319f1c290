// The part of a matmul's epilogue that cuBLASLt does not do for us; see relu_epilogue.py.
// In 16-byte accesses where both arrays stand on such, two of a thread on their way at once.

__device__ inline float kept(float out, float extra, bool grad) {
    return (grad ? !(extra > 0.0f) : out < 0.0f) ? 0.0f : out;
}

__device__ inline float4 kept(float4 out, float4 extra, bool grad) {
    return make_float4(kept(out.x, extra.x, grad), kept(out.y, extra.y, grad),
                       kept(out.z, extra.z, grad), kept(out.w, extra.w, grad));
}

// `extra` may be `out` where it is not read: neither is __restrict__.
extern "C" __global__ void __launch_bounds__(256, 4)
relu_epilogue(const float* extra, float* out, long long n, int grad) {
    long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    long long threads = (long long)gridDim.x * blockDim.x;
    bool vectors = (((unsigned long long)extra | (unsigned long long)out) & 15) == 0;
    long long quads = vectors ? n / 4 : 0;
    const float4* from = reinterpret_cast<const float4*>(extra);
    float4* to = reinterpret_cast<float4*>(out);
#pragma unroll 1
    for (long long i = first; i < quads; i += 2 * threads) {
        long long j = i + threads;
        bool second = j < quads;
        float4 a = to[i], b = a, of_a = a, of_b = a;
        if (second) b = to[j];
        if (grad) {
            of_a = from[i];
            if (second) of_b = from[j];
        }
        to[i] = kept(a, of_a, grad);
        if (second) to[j] = kept(b, of_b, grad);
    }
#pragma unroll 1
    for (long long i = 4 * quads + first; i < n; i += threads) {
        out[i] = kept(out[i], grad ? extra[i] : 0.0f, grad);
    }
}
