// New leaves of a batch, and which position writes each slot; see claim_priorities.py.
#include "common/layout.cuh"
#include "replay/priority.cuh"

extern "C" __global__ void __launch_bounds__(256) claim_priorities(
    const float* __restrict__ td, const int* __restrict__ index,
    const unsigned int* __restrict__ sampled_generation,
    const unsigned int* __restrict__ generation, float* __restrict__ leaf, int* owner,
    long long* diagnostics, int n, long long leaf_count, double alpha, double eps) {
    __shared__ int stale;
    __shared__ int not_finite;
    if (threadIdx.x == 0) {
        stale = 0;
        not_finite = 0;
    }
    __syncthreads();
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        const long long row = index[i];
        float written = 0.0f;
        if (row >= 0 && row < leaf_count) {
            if (generation[row] != sampled_generation[i]) {
                atomicAdd(&stale, 1);
            } else {
                written = priority_leaf(td[i], alpha, eps);
                if (usable_leaf(td[i], written)) {
                    atomicMax(&owner[row], (int)i);
                } else {
                    written = 0.0f;
                    atomicAdd(&not_finite, 1);
                }
            }
        }
        leaf[i] = written;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        // Two's complement: the sum of unsigned numbers is that of the signed ones.
        if (stale)
            atomicAdd((unsigned long long*)&diagnostics[D_STALE_UPDATE], (unsigned long long)stale);
        if (not_finite)
            atomicAdd((unsigned long long*)&diagnostics[D_NONFINITE_TD],
                      (unsigned long long)not_finite);
    }
}
