// The sum tree on the device: layout, summation order and descent as tree.py states them.
// Every function here is called by whole warps.
//
// A leaf's index fits an int (capacities are below 2^31), and so do sizes and nodes: the work of a
// level is mostly address arithmetic, which 64-bit integers would double.
#pragma once
#include "common/layout.cuh"

#define WHOLE_WARP 0xffffffffu

// Nodes of a level; level 0 is the leaves.
__device__ inline unsigned int tree_size(unsigned int leaf_count, int level) {
    const unsigned long long last = (1ULL << (5 * level)) - 1;
    return (unsigned int)((leaf_count + last) >> (5 * level));
}

// Number of inner levels.
__device__ inline int tree_depth(unsigned int leaf_count) {
    int depth = 0;
    do {
        leaf_count = (leaf_count + 31) >> 5;
        ++depth;
    } while (leaf_count > 1);
    return depth;
}

// Where a level (1 and up) starts in nodes.
__device__ inline unsigned int tree_offset(unsigned int leaf_count, int level) {
    unsigned int offset = 0;
    for (int k = 1; k < level; ++k) {
        leaf_count = (leaf_count + 31) >> 5;
        offset += leaf_count;
    }
    return offset;
}

// The lane's child of a node: of a leaf level (level 1's children) or of the level at `below`.
__device__ inline double tree_child(const float* leaves, const double* nodes, int level,
                                    unsigned int below, unsigned int children, unsigned int node) {
    const unsigned int child = node * FAN_OUT + (threadIdx.x & 31);
    if (child >= children) return 0.0;
    return level == 1 ? (double)leaves[child] : nodes[below + child];
}

// Hillis-Steele inclusive scan over the warp.
__device__ inline double warp_scan(double x) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int stride = 1; stride < 32; stride *= 2) {
        const double other = __shfl_up_sync(WHOLE_WARP, x, stride);
        if (lane >= stride) x = __dadd_rn(x, other);
    }
    return x;
}

// The last element of warp_scan, on every lane: the same pairs are joined, and addition commutes.
__device__ inline double warp_sum(double x) {
#pragma unroll
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
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    unsigned int below = 0, here = 0, children = (unsigned int)leaf_count;
    for (int level = 1;; ++level) {
        const unsigned int size = (children + 31) >> 5;
        const int count = touched.count(level, (int)size);
#pragma unroll 1
        for (int k = warp; k < count; k += 2 * warps) {  // two nodes at once, for their latency
            const int first = touched.node(level, (int)size, k);
            const int second = k + warps < count ? touched.node(level, (int)size, k + warps) : -1;
            double a = 0.0, b = 0.0;
            if (first >= 0) a = tree_child(leaves, nodes, level, below, children, first);
            if (second >= 0) b = tree_child(leaves, nodes, level, below, children, second);
            a = warp_sum(a);
            b = warp_sum(b);
            if (lane == 0 && first >= 0) nodes[here + first] = a;
            if (lane == 0 && second >= 0) nodes[here + second] = b;
        }
        __syncthreads();  // the next level reads what this one wrote
        if (size <= 1) break;
        below = here;
        here += size;
        children = size;
    }
}
