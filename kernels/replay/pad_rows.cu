// Widen float rows with zeros; see pad_rows.py.
extern "C" __global__ void pad_rows(const float* __restrict__ src, float* __restrict__ dst, int n,
                                    int width, int padded) {
    const long long total = (long long)n * padded;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
         i += (long long)gridDim.x * blockDim.x) {
        const int column = (int)(i % padded);
        dst[i] = column < width ? src[i / padded * width + column] : 0.0f;
    }
}
