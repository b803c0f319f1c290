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

// An element; FRESH: past the L1 cache, as other blocks of the same launch may have written it.
template <bool FRESH, typename T>
__device__ inline T fetched(const T* from) {
    return FRESH ? __ldcg(from) : *from;
}

// The lane's child of a node: of a leaf level (level 1's children) or of the level at `below`.
template <bool FRESH = false>
__device__ inline double tree_child(const float* leaves, const double* nodes, int level,
                                    unsigned int below, unsigned int children, unsigned int node) {
    const unsigned int child = node * FAN_OUT + (threadIdx.x & 31);
    if (child >= children) return 0.0;
    return level == 1 ? (double)fetched<FRESH>(leaves + child)
                      : fetched<FRESH>(nodes + below + child);
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

// The leaf that a threshold falls on, and its priority.
struct Drawn {
    unsigned int leaf;
    double priority;
};

// By one warp, from the root of a tree of `depth` inner levels which stands at `root` in nodes.
__device__ inline Drawn warp_draw(const float* leaves, const double* nodes, unsigned int leaf_count,
                                  int depth, unsigned int root, double t) {
    if (isnan(t)) t = 0.0;
    unsigned int at = 0, below = root;
    double priority = 0.0;
#pragma unroll 1
    for (int level = depth; level >= 1; --level) {
        const unsigned int children = tree_size(leaf_count, level - 1);
        below -= level > 1 ? children : 0;
        const double value = tree_child(leaves, nodes, level, below, children, at);
        const double scan = warp_scan(value);
        const unsigned int positive = __ballot_sync(WHOLE_WARP, value > 0.0);
        const unsigned int fits = __ballot_sync(WHOLE_WARP, value > 0.0 && t < scan);
        const int child = fits ? __ffs(fits) - 1 : (positive ? 31 - __clz(positive) : 0);
        const double before = __shfl_sync(WHOLE_WARP, scan, child > 0 ? child - 1 : 0);
        if (child > 0) t = __dsub_rn(t, before);
        priority = __shfl_sync(WHOLE_WARP, value, child);
        at = at * FAN_OUT + child;
    }
    return Drawn{at, priority};
}

__device__ inline unsigned int warp_descend(const float* leaves, const double* nodes,
                                            unsigned int leaf_count, int depth, unsigned int root,
                                            double t) {
    return warp_draw(leaves, nodes, leaf_count, depth, root, t).leaf;
}

#define NODE_LANES 8  // lanes that share the children of a node, four each

// Four neighbouring leaves from `leaf` on, a multiple of four; those past the end count 0.
template <bool FRESH>
__device__ inline float4 four_leaves(const float* leaves, unsigned int leaf_count,
                                     unsigned int leaf) {
    if (((size_t)leaves & 15) == 0 && leaf + 3 < leaf_count)
        return fetched<FRESH>(reinterpret_cast<const float4*>(leaves + leaf));
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (leaf < leaf_count) four.x = fetched<FRESH>(leaves + leaf);
    if (leaf + 1 < leaf_count) four.y = fetched<FRESH>(leaves + leaf + 1);
    if (leaf + 2 < leaf_count) four.z = fetched<FRESH>(leaves + leaf + 2);
    if (leaf + 3 < leaf_count) four.w = fetched<FRESH>(leaves + leaf + 3);
    return four;
}

// Four neighbours' part of a node's sum, as warp_sum joins them.
__device__ inline double four_sum(float4 four) {
    return __dadd_rn(__dadd_rn((double)four.x, (double)four.y),
                     __dadd_rn((double)four.z, (double)four.w));
}

// A node's sum from the parts of its lanes, as warp_sum goes on to join them; on all of its lanes.
// By whole warps.
__device__ inline double node_lanes_sum(double x) {
#pragma unroll
    for (int stride = 1; stride < NODE_LANES; stride *= 2)
        x = __dadd_rn(x, __shfl_xor_sync(WHOLE_WARP, x, stride));
    return x;
}

// Recomputes, by one block and level by level, the nodes that `touched` names:
// touched.count(level, size) of them, touched.node(level, size, k) the k-th, or -1 for none.
// A node may be named twice: both write the same number. The lanes of a node take several at once,
// for the latency of their children. Levels below `from` are left as they are.
template <int NODES_IN_FLIGHT, bool FRESH = false, typename Touched>
__device__ inline void refresh_levels(const float* leaves, double* nodes, long long leaf_count,
                                      const Touched& touched, int from = 1) {
    const int of = threadIdx.x / NODE_LANES, places = blockDim.x / NODE_LANES;
    const unsigned int first = threadIdx.x % NODE_LANES * 4;
    unsigned int below = 0, here = 0, children = (unsigned int)leaf_count;
    for (int level = 1;; ++level) {
        const unsigned int size = (children + 31) >> 5;
        const int count = level < from ? 0 : touched.count(level, (int)size);
#pragma unroll 1
        for (int k = 0; k < count; k += NODES_IN_FLIGHT * places) {
            int node[NODES_IN_FLIGHT];
            unsigned int child[NODES_IN_FLIGHT];
            double sum[NODES_IN_FLIGHT];
#pragma unroll
            for (int u = 0; u < NODES_IN_FLIGHT; ++u) {
                const int at = k + u * places + of;
                node[u] = at < count ? touched.node(level, (int)size, at) : -1;
                // Of no node there are no children: they are all past the end.
                child[u] = node[u] >= 0 ? node[u] * FAN_OUT + first : 0xffffff00u;
            }
            // All are asked for before any is added up.
            if (level == 1) {
                float4 four[NODES_IN_FLIGHT];
#pragma unroll
                for (int u = 0; u < NODES_IN_FLIGHT; ++u)
                    four[u] = four_leaves<FRESH>(leaves, (unsigned int)leaf_count, child[u]);
#pragma unroll
                for (int u = 0; u < NODES_IN_FLIGHT; ++u) sum[u] = four_sum(four[u]);
            } else {
                double four[NODES_IN_FLIGHT][4];
#pragma unroll
                for (int u = 0; u < NODES_IN_FLIGHT; ++u)
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        four[u][j] = child[u] + j < children
                                         ? fetched<FRESH>(nodes + below + child[u] + j)
                                         : 0.0;
#pragma unroll
                for (int u = 0; u < NODES_IN_FLIGHT; ++u)
                    sum[u] = __dadd_rn(__dadd_rn(four[u][0], four[u][1]),
                                       __dadd_rn(four[u][2], four[u][3]));
            }
#pragma unroll
            for (int u = 0; u < NODES_IN_FLIGHT; ++u) {
                sum[u] = node_lanes_sum(sum[u]);
                if (first == 0 && node[u] >= 0) nodes[here + node[u]] = sum[u];
            }
        }
        __syncthreads();  // the next level reads what this one wrote
        if (size <= 1) break;
        below = here;
        here += size;
        children = size;
    }
}

// Recomputes the nodes of level 1 above a batch's leaves, NODE_LANES lanes a node, by all warps of
// the grid.
template <bool FRESH>
__device__ inline void refresh_above(const float* leaves, double* nodes, const int* index,
                                     unsigned int leaf_count, int n) {
    const long long lanes = (long long)n * NODE_LANES;
    const long long of_grid = (long long)gridDim.x * blockDim.x;
    // Whole warps go round together.
    for (long long thread = blockIdx.x * (long long)blockDim.x + (threadIdx.x & ~31u);
         thread < lanes; thread += of_grid) {
        const long long k = (thread + (threadIdx.x & 31)) / NODE_LANES;
        const int leaf = k < n ? index[k] : -1;
        const bool inside = leaf >= 0 && (unsigned int)leaf < leaf_count;
        const unsigned int node = inside ? (unsigned int)leaf / FAN_OUT : 0u;
        const unsigned int first = node * FAN_OUT + threadIdx.x % NODE_LANES * 4;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (inside) four = four_leaves<FRESH>(leaves, leaf_count, first);
        const double sum = node_lanes_sum(four_sum(four));
        if (inside && threadIdx.x % NODE_LANES == 0) nodes[node] = sum;
    }
}

// Of a group (`refresh_group`) of level 1, whose leaves the threads hold: eight threads a node.
__device__ inline void refresh_leaf_group(float4 four, double* nodes, unsigned int leaf_count,
                                          unsigned int group) {
    __shared__ double sums[FAN_OUT];
    const unsigned int size = tree_size(leaf_count, 1), of = threadIdx.x / NODE_LANES;
    const unsigned int node = group * FAN_OUT + of;
    const double sum = node_lanes_sum(four_sum(four));
    if (threadIdx.x % NODE_LANES == 0) {
        sums[of] = sum;
        if (node < size) nodes[node] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32 && size > 1) {
        const double above = warp_sum(sums[threadIdx.x]);
        if (threadIdx.x == 0) nodes[size + group] = above;
    }
    __syncthreads();  // before the next group's sums overwrite these
}

// The first of the four leaves that a thread holds of a group.
__device__ inline unsigned int leaf_of_group(unsigned int group) {
    return (group * FAN_OUT + threadIdx.x / NODE_LANES) * FAN_OUT + threadIdx.x % NODE_LANES * 4;
}

// Recomputes, by one block of 256 threads, 32 neighbouring nodes of `level` and the node above them,
// if there is one: group g is the children of node g of the next level. Several blocks may be given
// the same group: they write the same numbers.
template <bool FRESH = false>
__device__ inline void refresh_group(const float* leaves, double* nodes, unsigned int leaf_count,
                                     int level, unsigned int group) {
    if (level == 1) {
        const float4 four = four_leaves<FRESH>(leaves, leaf_count, leaf_of_group(group));
        refresh_leaf_group(four, nodes, leaf_count, group);
        return;
    }
    __shared__ double sums[FAN_OUT];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const unsigned int size = tree_size(leaf_count, level);
    const unsigned int children = tree_size(leaf_count, level - 1);
    const unsigned int below = tree_offset(leaf_count, level - 1);
    const unsigned int here = tree_offset(leaf_count, level);
    double sum[FAN_OUT / 8];
#pragma unroll
    for (int u = 0; u < FAN_OUT / 8; ++u) {
        const unsigned int node = group * FAN_OUT + warp + 8 * u;
        sum[u] = node < size ? tree_child<FRESH>(leaves, nodes, level, below, children, node) : 0.0;
    }
#pragma unroll
    for (int u = 0; u < FAN_OUT / 8; ++u) {
        const unsigned int node = group * FAN_OUT + warp + 8 * u;
        sum[u] = warp_sum(sum[u]);
        if (lane == 0) sums[warp + 8 * u] = sum[u];
        if (lane == 0 && node < size) nodes[here + node] = sum[u];
    }
    __syncthreads();
    if (warp == 0 && size > 1) {
        const double above = warp_sum(sums[lane]);
        if (lane == 0) nodes[here + size + group] = above;
    }
    __syncthreads();  // before the next group's sums overwrite these
}

// The group of `level` that a leaf lies under.
__device__ inline unsigned int group_above(unsigned int leaf, int level) {
    const int up = 5 * (level + 1);
    return up < 31 ? leaf >> up : 0u;
}
