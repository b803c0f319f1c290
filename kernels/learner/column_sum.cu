// A block of 32 x 32 threads adds 32 columns (column_sum.py).
extern "C" __global__ void column_sum(const float* __restrict__ x, float* __restrict__ out, int rows,
                                      int cols) {
    __shared__ float partial[32][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
    for (long long tile = blockIdx.x; tile * 32 < cols; tile += gridDim.x) {
        long long col = tile * 32 + tx;
        float sum = 0.0f;
        if (col < cols) {
#pragma unroll 8
            for (long long row = ty; row < rows; row += 32) sum += x[row * cols + col];
        }
        partial[ty][tx] = sum;
        __syncthreads();
        if (ty == 0 && col < cols) {
            float total = 0.0f;
            for (int i = 0; i < 32; ++i) total += partial[i][tx];
            out[col] = total;
        }
        __syncthreads();
    }
}
