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
        double t = thresholds[draw];
        if (isnan(t)) t = 0.0;
        unsigned int at = 0, below = root;
        for (int level = depth; level >= 1; --level) {
            const unsigned int children = tree_size(leaf_total, level - 1);
            below -= level > 1 ? children : 0;
            const double value = tree_child(leaves, nodes, level, below, children, at);
            const double scan = warp_scan(value);
            const unsigned int positive = __ballot_sync(WHOLE_WARP, value > 0.0);
            const unsigned int fits = __ballot_sync(WHOLE_WARP, value > 0.0 && t < scan);
            const int child = fits ? __ffs(fits) - 1 : (positive ? 31 - __clz(positive) : 0);
            const double before = __shfl_sync(WHOLE_WARP, scan, child > 0 ? child - 1 : 0);
            if (child > 0) t = __dsub_rn(t, before);
            at = at * FAN_OUT + child;
        }
        if (lane == 0) {
            index[draw] = (int)at;
            sampled_generation[draw] = generation[at];
        }
    }
}
