// Importance-sampling weights, divided by the largest of the batch; see scale_weights.py.
#include "replay/weights.cuh"

extern "C" __global__ void __launch_bounds__(256)
scale_weights(const double* __restrict__ raw, const double* __restrict__ largest,
              float* __restrict__ weights, int n, int parts) {
    double most = 0.0;
    for (int part = threadIdx.x; part < parts; part += blockDim.x) most = fmax(most, largest[part]);
    most = block_largest(most);
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x)
        weights[i] = scaled_weight(raw[i], most);
}
