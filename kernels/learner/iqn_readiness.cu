// Average of the quantile loss and the weight of the quantile head, by one block (iqn_readiness.py).
#include "learner/readiness.cuh"
#include "learner/reduce.cuh"

extern "C" __global__ void iqn_readiness(const float* __restrict__ loss, const int* __restrict__ skip,
                                         double* __restrict__ ready, int n, double decay, double low,
                                         double high) {
    if (blockIdx.x != 0 || skip[0] != 0 || n <= 0) return;
    double sum = 0.0;
    for (long long i = threadIdx.x; i < n; i += LANES) sum += (double)loss[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) take_loss(sum / (double)n, ready, decay, low, high);
}
