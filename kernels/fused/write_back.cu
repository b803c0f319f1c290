// A batch's new priorities into the tree, up to the root, in one launch; see write_back.py.
#include "common/last_block.cuh"
#include "fused/grid_barrier.cuh"
#include "replay/priorities.cuh"

// write_back.py: Form
enum Form { W_TOUCHED = 0, W_WHOLE = 1, W_APART = 2 };

// A batch position's new leaf, and its claim on the slot: claim_priorities.cu.
__device__ inline void claim(const float* td, const int* index,
                             const unsigned int* sampled_generation,
                             const unsigned int* generation, float* leaf, int* owner, int n,
                             long long leaf_count, double alpha, double eps, int* stale,
                             int* not_finite) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        const long long row = index[i];
        const bool inside = row >= 0 && row < leaf_count;
        // The slot's generation is on its way while the leaf is computed.
        const unsigned int held = inside ? generation[row] : 0u;
        const float error = td[i], found = priority_leaf(error, alpha, eps);
        const bool fresh = inside && held == sampled_generation[i];
        const bool kept = fresh && usable_leaf(error, found);
        if (kept) atomicMax(&owner[row], (int)i);
        if (inside && !fresh) atomicAdd(stale, 1);
        if (fresh && !kept) atomicAdd(not_finite, 1);
        leaf[i] = kept ? found : 0.0f;
    }
}

// The leaves of the positions that own their slots: write_priorities.cu. By `threads` threads, of
// which this is number `first`.
__device__ inline void write_owned(const float* leaf, const int* index, int* owner, float* leaves,
                                   int n, long long leaf_count, long long first, long long threads,
                                   int* largest) {
    for (long long i = first; i < n; i += threads) {
        const long long row = index[i];
        if (row < 0 || row >= leaf_count || __ldcg(owner + row) != (int)i) continue;
        const float written = __ldcg(leaf + i);
        leaves[row] = written;
        owner[row] = -1;  // no position is -1, so that those who lost still do
        atomicMax(largest, __float_as_int(written));
    }
}

// The owners of four neighbouring slots, -1 past the end.
__device__ inline int4 four_owners(const int* owner, unsigned int leaf_count, unsigned int leaf) {
    if (((size_t)owner & 15) == 0 && leaf + 3 < leaf_count)
        return __ldcg(reinterpret_cast<const int4*>(owner + leaf));
    int4 four = make_int4(-1, -1, -1, -1);
    if (leaf < leaf_count) four.x = __ldcg(owner + leaf);
    if (leaf + 1 < leaf_count) four.y = __ldcg(owner + leaf + 1);
    if (leaf + 2 < leaf_count) four.z = __ldcg(owner + leaf + 2);
    if (leaf + 3 < leaf_count) four.w = __ldcg(owner + leaf + 3);
    return four;
}

// What a slot's leaf is to be: that of the position which owns it, if one does. `settle`: writes it.
__device__ inline float settled(float before, int by, unsigned int slot, const float* leaf,
                                float* leaves, int* owner, bool settle, int* largest) {
    if (by < 0) return before;
    const float written = __ldcg(leaf + by);
    if (settle) {
        leaves[slot] = written;
        owner[slot] = -1;
        atomicMax(largest, __float_as_int(written));
    }
    return written;
}

// A group of a batch, and the leaves that a thread holds of it.
struct Group {
    bool any;
    unsigned int number;
    float4 leaves;
};

// The k-th: of all groups, or of those above the batch's positions.
__device__ inline Group group_at(const float* leaves, const int* index, unsigned int leaf_count,
                                 unsigned int k, unsigned int count, bool whole) {
    Group found = {k < count, k};
    if (found.any && !whole) {
        const int drawn = index[k];
        found.any = drawn >= 0 && (unsigned int)drawn < leaf_count;
        found.number = group_above((unsigned int)drawn, 1);
    }
    if (found.any) found.leaves = four_leaves<true>(leaves, leaf_count, leaf_of_group(found.number));
    return found;
}

extern "C" __global__ void __launch_bounds__(256, 4) write_back(
    const float* td, const int* index, const unsigned int* sampled_generation,
    const unsigned int* generation, float* leaf, float* leaves, double* nodes, int* owner,
    float* max_leaf, long long* diagnostics, unsigned int* barrier, unsigned int* ticket, int n,
    long long leaf_count, double alpha, double eps, int form, int blocks) {
    __shared__ int stale, not_finite;
    __shared__ int largest;  // the bits of a float >= 0, which order as the numbers do
    if (threadIdx.x == 0) stale = not_finite = largest = 0;
    __syncthreads();
    claim(td, index, sampled_generation, generation, leaf, owner, n, leaf_count, alpha, eps, &stale,
          &not_finite);

    const unsigned int leaf_total = (unsigned int)leaf_count;
    const bool whole = form == W_WHOLE;
    const unsigned int count = whole ? tree_size(leaf_total, 2) : (unsigned int)n;
    const long long thread = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        // Two's complement: the sum of unsigned numbers is that of the signed ones.
        if (stale)
            atomicAdd((unsigned long long*)&diagnostics[D_STALE_UPDATE], (unsigned long long)stale);
        if (not_finite)
            atomicAdd((unsigned long long*)&diagnostics[D_NONFINITE_TD],
                      (unsigned long long)not_finite);
    }
    // The leaves of a block's group are on their way while it waits: until then nobody writes any.
    Group here = {false, 0};
    if (form != W_APART) here = group_at(leaves, index, leaf_total, blockIdx.x, count, whole);
    grid_barrier(barrier);

    if (form == W_APART) {
        write_owned(leaf, index, owner, leaves, n, leaf_count, thread, threads, &largest);
        grid_barrier(barrier);
        refresh_above<true>(leaves, nodes, index, leaf_total, n);
        grid_barrier(barrier);
        if (tree_depth(leaf_total) > 1) {
            const unsigned int size = tree_size(leaf_total, 2), groups = tree_size(leaf_total, 3);
            const bool all = groups <= (unsigned int)n;
            for (unsigned int k = blockIdx.x; size > 0 && k < (all ? groups : (unsigned int)n);
                 k += gridDim.x) {
                const int drawn = all ? 0 : index[k];
                if (drawn < 0 || drawn >= leaf_count) continue;  // the same for the whole block
                refresh_group<true>(leaves, nodes, leaf_total, 2,
                                    all ? k : group_above((unsigned int)drawn, 2));
            }
        }
    } else {
        // The leaves of a group are what they were, or what the owners of their slots make of them.
        for (unsigned int k = blockIdx.x; k < count; k += gridDim.x) {
            const Group next =
                group_at(leaves, index, leaf_total, k + gridDim.x, count, whole);
            if (here.any) {  // the same for the whole block
                const unsigned int slot = leaf_of_group(here.number);
                const int4 by = four_owners(owner, leaf_total, slot);
                float4 four = here.leaves;
                four.x = settled(four.x, by.x, slot, leaf, leaves, owner, whole, &largest);
                four.y = settled(four.y, by.y, slot + 1, leaf, leaves, owner, whole, &largest);
                four.z = settled(four.z, by.z, slot + 2, leaf, leaves, owner, whole, &largest);
                four.w = settled(four.w, by.w, slot + 3, leaf, leaves, owner, whole, &largest);
                refresh_leaf_group(four, nodes, leaf_total, here.number);
            }
            here = next;
        }
    }

    __syncthreads();
    if (threadIdx.x == 0 && largest > 0) atomicMax((int*)max_leaf, largest);
    if (!last_block(ticket)) return;
    // What is left is little: the upper levels, and of a small batch the leaves.
    if (form == W_TOUCHED) {
        write_owned(leaf, index, owner, leaves, n, leaf_count, threadIdx.x, blockDim.x, &largest);
        __syncthreads();
        if (threadIdx.x == 0 && largest > 0) atomicMax((int*)max_leaf, largest);
    }
    if (n > 0)
        refresh_levels<4, true>(leaves, nodes, leaf_count, TouchedByBatch{index, n, leaf_count},
                                form == W_APART ? 4 : 3);
}
