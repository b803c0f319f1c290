// The sum tree on the device: layout, summation order and descent as tree.py states them.
// Every function here is called by whole warps.
#pragma once
#include "common/layout.cuh"

#define WHOLE_WARP 0xffffffffu
#define NODES_IN_FLIGHT 4

// Nodes of a level; level 0 is the leaves.
__device__ inline long long tree_size(long long leaf_count, int level) {
    return (leaf_count + (1LL << (5 * level)) - 1) >> (5 * level);
}

// Number of inner levels.
__device__ inline int tree_depth(long long leaf_count) {
    int depth = 1;
    while (tree_size(leaf_count, depth) > 1) ++depth;
    return depth;
}

// Where a level (1 and up) starts in nodes.
__device__ inline long long tree_offset(long long leaf_count, int level) {
    long long offset = 0;
    for (int k = 1; k < level; ++k) offset += tree_size(leaf_count, k);
    return offset;
}

// The lane's child of a node: of a leaf level (level 1's children) or of the level at `below`.
__device__ inline double tree_child(const float* leaves, const double* nodes, int level,
                                    long long below, long long children, long long node) {
    long long child = node * FAN_OUT + (threadIdx.x & 31);
    if (child >= children) return 0.0;
    return level == 1 ? (double)leaves[child] : nodes[below + child];
}

// Hillis-Steele inclusive scan over the warp.
__device__ inline double warp_scan(double x) {
    int lane = threadIdx.x & 31;
    for (int stride = 1; stride < 32; stride *= 2) {
        double other = __shfl_up_sync(WHOLE_WARP, x, stride);
        if (lane >= stride) x = __dadd_rn(x, other);
    }
    return x;
}

// The last element of warp_scan, on every lane: the same pairs are joined, and addition commutes.
__device__ inline double warp_sum(double x) {
    for (int stride = 1; stride < 32; stride *= 2)
        x = __dadd_rn(x, __shfl_xor_sync(WHOLE_WARP, x, stride));
    return x;
}

// Recomputes, by one block and level by level, the nodes that `touched` names:
// touched.count(level, size) of them, touched.node(level, size, k) the k-th, or -1 for none.
// A node may be named twice: both write the same number.
template <typename Touched>
__device__ inline void refresh_levels(const float* leaves, double* nodes, long long leaf_count,
                                      const Touched& touched) {
    const int lane = threadIdx.x & 31;
    const long long warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int depth = tree_depth(leaf_count);
    long long below = 0, here = 0, children = leaf_count;
    for (int level = 1; level <= depth; ++level) {
        const long long size = tree_size(leaf_count, level);
        const long long count = touched.count(level, size);
        for (long long first = warp; first < count; first += warps * NODES_IN_FLIGHT) {
            long long node[NODES_IN_FLIGHT];
            double value[NODES_IN_FLIGHT];
            for (int u = 0; u < NODES_IN_FLIGHT; ++u) {
                long long k = first + u * warps;
                node[u] = k < count ? touched.node(level, size, k) : -1;
                value[u] = node[u] < 0
                               ? 0.0
                               : tree_child(leaves, nodes, level, below, children, node[u]);
            }
            for (int u = 0; u < NODES_IN_FLIGHT; ++u) {
                double sum = warp_sum(value[u]);
                if (lane == 0 && node[u] >= 0) nodes[here + node[u]] = sum;
            }
        }
        __syncthreads();  // the next level reads what this one wrote
        below = here;
        here += size;
        children = size;
    }
}
