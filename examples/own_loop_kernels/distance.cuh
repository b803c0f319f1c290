// A header of the example's own: it is found beside the kernels that include it.
#pragma once

__device__ inline float squared_distance(const float* a, const float* b, int dims) {
    float sum = 0.0f;
    for (int d = 0; d < dims; ++d) {
        float gap = a[d] - b[d];
        sum += gap * gap;
    }
    return sum;
}
