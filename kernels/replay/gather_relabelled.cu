// Gather goal-conditioned rows under their new goals; see gather_relabelled.py.
extern "C" __global__ void gather_relabelled(
    const float* __restrict__ src, const float* __restrict__ next_state,
    const int* __restrict__ index, const int* __restrict__ donor, float* __restrict__ dst, int n,
    int width, int src_stride, int dst_stride, int achieved, int goal, int goal_width,
    long long rows) {
    const long long total = (long long)n * dst_stride;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
         i += (long long)gridDim.x * blockDim.x) {
        const int column = (int)(i % dst_stride);
        const long long row = index[i / dst_stride], from = donor[i / dst_stride];
        const bool inside = row >= 0 && row < rows && column < width && column < src_stride;
        const bool given = from >= 0 && from < rows && column >= goal && column - goal < goal_width;
        float value = 0.0f;
        if (inside) {
            value = given ? next_state[from * src_stride + achieved + (column - goal)]
                          : src[row * src_stride + column];
        }
        dst[i] = value;
    }
}
