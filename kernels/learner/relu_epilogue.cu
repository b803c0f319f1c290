// The part of a matmul's epilogue that cuBLASLt does not do for us; see relu_epilogue.py.
extern "C" __global__ void relu_epilogue(const float* __restrict__ extra, float* __restrict__ out,
                                         long long n, int grad) {
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        if (grad) {
            if (!(extra[i] > 0.0f)) out[i] = 0.0f;
        } else if (out[i] < 0.0f) {
            out[i] = 0.0f;
        }
    }
}
