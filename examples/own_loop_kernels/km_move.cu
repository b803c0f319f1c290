// Move each centroid towards its points (km_move.py). One thread a centroid, in the batch's order.
extern "C" __global__ void km_move(const float* __restrict__ points, const int* __restrict__ first,
                                   const int* __restrict__ label, float* __restrict__ centroids,
                                   long long* __restrict__ count, int batch, int clusters,
                                   int dims) {
    int stride = gridDim.x * blockDim.x;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < clusters; k += stride) {
        float* c = centroids + (long long)k * dims;
        for (int i = 0; i < batch; ++i) {
            if (label[i] != k) continue;
            const float* x = points + (long long)(first[0] + i) * dims;
            float n = (float)++count[k];
            for (int d = 0; d < dims; ++d) c[d] += (x[d] - c[d]) / n;
        }
    }
}
