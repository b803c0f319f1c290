// Gather int32 scalars; see gather_i32.py.
extern "C" __global__ void gather_i32(const int* __restrict__ src, const int* __restrict__ index,
                                      int* __restrict__ dst, int n, long long rows) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        const long long row = index[i];
        dst[i] = row >= 0 && row < rows ? src[row] : (int)0;
    }
}
