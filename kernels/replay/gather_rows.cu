// Gather float rows into a padded buffer; see gather_rows.py.
extern "C" __global__ void gather_rows(const float* __restrict__ src,
                                       const int* __restrict__ index, float* __restrict__ dst,
                                       int n, int width, int src_stride, int dst_stride,
                                       long long rows) {
    const long long total = (long long)n * dst_stride;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
         i += (long long)gridDim.x * blockDim.x) {
        const int column = (int)(i % dst_stride);
        const long long row = index[i / dst_stride];
        const bool inside = row >= 0 && row < rows && column < width && column < src_stride;
        dst[i] = inside ? src[row * src_stride + column] : 0.0f;
    }
}
