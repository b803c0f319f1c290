// A gradient times a scale from device memory, an element a thread (scaled_add_grad.py).
extern "C" __global__ void scaled_add_grad(const float* __restrict__ grad_out,
                                           const float* __restrict__ scale,
                                           float* __restrict__ grad_b, long long n) {
    float factor = scale[0];
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        grad_b[i] = factor == 0.0f ? 0.0f : factor * grad_out[i];
    }
}
