// km_move with its division turned into a product (km_move_reciprocal.py).
extern "C" __global__ void km_move_reciprocal(const float* __restrict__ points,
                                              const int* __restrict__ first,
                                              const int* __restrict__ label,
                                              float* __restrict__ centroids,
                                              long long* __restrict__ count, int batch,
                                              int clusters, int dims) {
    int stride = gridDim.x * blockDim.x;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < clusters; k += stride) {
        float* c = centroids + (long long)k * dims;
        for (int i = 0; i < batch; ++i) {
            if (label[i] != k) continue;
            const float* x = points + (long long)(first[0] + i) * dims;
            float reciprocal = 1.0f / (float)++count[k];
            for (int d = 0; d < dims; ++d) c[d] += (x[d] - c[d]) * reciprocal;
        }
    }
}
