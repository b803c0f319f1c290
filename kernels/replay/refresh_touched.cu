// Recompute the nodes above the leaves that a batch touched, eight lanes a node; refresh_touched.py.
#include "replay/tree.cuh"

extern "C" __global__ void __launch_bounds__(256)
refresh_touched(const float* __restrict__ leaves, double* __restrict__ nodes,
                const int* __restrict__ index, long long leaf_count, int n, int lanes) {
    const long long of_grid = (long long)gridDim.x * blockDim.x;
    // Whole warps go round together.
    for (long long thread = blockIdx.x * (long long)blockDim.x + (threadIdx.x & ~31); thread < lanes;
         thread += of_grid) {
        const long long k = (thread + (threadIdx.x & 31)) / LEAF_LANES;
        const int leaf = k < n ? index[k] : -1;
        const bool inside = leaf >= 0 && leaf < leaf_count;
        const unsigned int node = inside ? (unsigned int)leaf / FAN_OUT : 0u;
        const unsigned int first = node * FAN_OUT + threadIdx.x % LEAF_LANES * 4;
        const double four = inside ? four_leaves(leaves, (unsigned int)leaf_count, first) : 0.0;
        const double sum = leaf_lanes_sum(four);
        if (inside && threadIdx.x % LEAF_LANES == 0) nodes[node] = sum;
    }
}
