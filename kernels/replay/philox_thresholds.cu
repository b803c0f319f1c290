// Thresholds of a prioritized draw; see philox_thresholds.py.
#include "common/layout.cuh"
#include "common/philox.cuh"
#include "replay/threshold.cuh"

extern "C" __global__ void philox_thresholds(const double* __restrict__ total,
                                             const long long* __restrict__ counters,
                                             double* __restrict__ thresholds, int n,
                                             unsigned long long seed, int strata) {
    const unsigned int step = (unsigned int)counters[RNG];
    const double sum = total[0];
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        const double u = philox_uniform(seed, (unsigned int)i, step, T_SAMPLE).u[0];
        thresholds[i] = threshold_of((unsigned int)i, u, sum, strata);
    }
}
