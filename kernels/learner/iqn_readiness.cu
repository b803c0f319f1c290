// Average of the quantile loss and the weight of the quantile head, by one block (iqn_readiness.py).
#include "learner/reduce.cuh"

extern "C" __global__ void iqn_readiness(const float* __restrict__ loss, const int* __restrict__ skip,
                                         double* __restrict__ ready, int n, double decay, double low,
                                         double high) {
    if (blockIdx.x != 0 || skip[0] != 0 || n <= 0) return;
    double sum = 0.0;
    for (long long i = threadIdx.x; i < n; i += LANES) sum += (double)loss[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        double mean = sum / (double)n;
        if (!isfinite(mean)) return;
        double before = ready[0];
        double ema = isnan(before) ? mean : before * decay + (1.0 - decay) * mean;
        double share = (high - ema) / (high - low);
        ready[0] = ema;
        ready[1] = share < 0.0 ? 0.0 : (share > 1.0 ? 1.0 : share);
    }
}
