// The nearest centroid of each point of a batch (km_assign.py). One thread a point.
#include "distance.cuh"

extern "C" __global__ void km_assign(const float* __restrict__ points,
                                     const float* __restrict__ centroids,
                                     const int* __restrict__ first, int* __restrict__ label,
                                     float* __restrict__ distance, int batch, int clusters,
                                     int dims) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < batch; i += stride) {
        const float* x = points + (long long)(first[0] + i) * dims;
        int nearest = 0;
        float least = squared_distance(x, centroids, dims);
        for (int k = 1; k < clusters; ++k) {
            float squared = squared_distance(x, centroids + (long long)k * dims, dims);
            if (squared < least) {
                least = squared;
                nearest = k;
            }
        }
        label[i] = nearest;
        distance[i] = least;
    }
}
