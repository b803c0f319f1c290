// Write a batch's new priorities into the tree, by one block; see update_priorities.py.
#include "replay/priorities.cuh"

extern "C" __global__ void __launch_bounds__(512) update_priorities(
    const float* __restrict__ td, const int* __restrict__ index,
    const unsigned int* __restrict__ sampled_generation,
    const unsigned int* __restrict__ generation, float* leaves, double* nodes, int* owner,
    float* max_leaf, long long* diagnostics, int n, long long leaf_count, double alpha,
    double eps) {
    block_priorities<4>(td, index, sampled_generation, generation, leaves, nodes, owner, max_leaf,
                        diagnostics, n, leaf_count, alpha, eps);
}
