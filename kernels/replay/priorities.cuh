// A batch's new priorities into the tree, by one block (update_priorities.py).
#pragma once
#include "common/layout.cuh"
#include "replay/priority.cuh"
#include "replay/tree.cuh"

// A level no larger than the batch is recomputed whole: fewer nodes than one for each position.
struct TouchedByBatch {
    const int* index;
    int n;
    long long leaf_count;
    __device__ int count(int, int size) const { return size < n ? size : n; }
    __device__ int node(int level, int size, int k) const {
        if (size < n) return k;
        const int leaf = index[k];
        if (leaf < 0 || leaf >= leaf_count) return -1;
        return 5 * level < 31 ? leaf >> (5 * level) : 0;
    }
};

template <int NODES_IN_FLIGHT>
__device__ inline void block_priorities(const float* td, const int* index,
                                        const unsigned int* sampled_generation,
                                        const unsigned int* generation, float* leaves,
                                        double* nodes, int* owner, float* max_leaf,
                                        long long* diagnostics, int n, long long leaf_count,
                                        double alpha, double eps) {
    __shared__ int stale;
    __shared__ int not_finite;
    __shared__ int largest;  // the bits of a float >= 0
    if (threadIdx.x == 0) {
        stale = 0;
        not_finite = 0;
        largest = 0;
    }
    __syncthreads();

    // A thread's first leaf is kept for the second pass; a batch within the block has no others.
    float mine = 0.0f;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        const long long row = index[i];
        if (row < 0 || row >= leaf_count) continue;
        if (generation[row] != sampled_generation[i]) {
            atomicAdd(&stale, 1);
            continue;
        }
        const float leaf = priority_leaf(td[i], alpha, eps);
        if (i == threadIdx.x) mine = leaf;
        if (usable_leaf(td[i], leaf))
            atomicMax(&owner[row], (int)i);
        else
            atomicAdd(&not_finite, 1);
    }
    __syncthreads();

    // A position that was dropped above owns nothing: a slot's owner is one that was not.
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        const long long row = index[i];
        if (row < 0 || row >= leaf_count || owner[row] != (int)i) continue;
        const float leaf = i == threadIdx.x ? mine : priority_leaf(td[i], alpha, eps);
        leaves[row] = leaf;
        owner[row] = -1;  // no position is -1, so that those who lost still do
        atomicMax(&largest, __float_as_int(leaf));
    }
    __syncthreads();

    if (threadIdx.x == 0) {
        diagnostics[D_STALE_UPDATE] += stale;
        diagnostics[D_NONFINITE_TD] += not_finite;
        max_leaf[0] = fmaxf(max_leaf[0], __int_as_float(largest));
    }
    if (n > 0) refresh_levels<NODES_IN_FLIGHT>(leaves, nodes, leaf_count, TouchedByBatch{index, n, leaf_count});
}
