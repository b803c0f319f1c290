// Gather float32 scalars; see gather_f32.py.
extern "C" __global__ void gather_f32(const float* __restrict__ src, const int* __restrict__ index,
                                      float* __restrict__ dst, int n, long long rows) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        const long long row = index[i];
        dst[i] = row >= 0 && row < rows ? src[row] : (float)0;
    }
}
