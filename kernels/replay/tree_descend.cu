// The draw, a warp a threshold; see tree_descend.py.
#include "replay/tree.cuh"

extern "C" __global__ void tree_descend(const float* __restrict__ leaves,
                                        const double* __restrict__ nodes,
                                        const double* __restrict__ thresholds,
                                        const unsigned int* __restrict__ generation,
                                        int* __restrict__ index,
                                        unsigned int* __restrict__ sampled_generation, int n,
                                        long long leaf_count) {
    const int lane = threadIdx.x & 31;
    const unsigned int leaf_total = (unsigned int)leaf_count;
    const int depth = tree_depth(leaf_total);
    const unsigned int root = tree_offset(leaf_total, depth);
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    for (long long draw = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5); draw < n;
         draw += warps) {
        const unsigned int at =
            warp_descend(leaves, nodes, leaf_total, depth, root, thresholds[draw]);
        if (lane == 0) {
            index[draw] = (int)at;
            sampled_generation[draw] = generation[at];
        }
    }
}
