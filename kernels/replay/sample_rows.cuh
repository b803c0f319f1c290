// The rows of a batch from the draw to the learner's arrays: by a warp each, or by several a warp.
#pragma once
#include "common/philox.cuh"
#include "replay/grouped.cuh"
#include "replay/threshold.cuh"

// The replay, as the kernels that draw from it get it.
struct RingArrays {
    const float* leaves;
    const double* nodes;
    const unsigned int* generation;
    const float *state, *next_state;
    const int* action;
    const float* reward;
    const unsigned char* flags;
};

// Where a batch goes.
struct BatchArrays {
    int* index;
    unsigned int* generation;
    float *state, *next_state;
    int* action;
    float *ret, *discount;
};

// Sizes and constants of a draw, and what the device's counters say of the replay.
struct DrawSizes {
    int n, width, padded, lanes, n_step, strata;
    double gamma;
    unsigned long long seed;
    unsigned int leaf_count, rows, filled, root, step;
    int depth, head;
    double total;
};

__device__ inline DrawSizes draw_sizes(const double* nodes, const long long* counters, int n,
                                       long long leaf_count, int width, int padded, int lanes,
                                       int slots, int n_step, double gamma,
                                       unsigned long long seed, int strata) {
    DrawSizes d = {n, width, padded, lanes, n_step, strata, gamma, seed};
    d.leaf_count = (unsigned int)leaf_count;
    d.depth = tree_depth(d.leaf_count);
    d.root = tree_offset(d.leaf_count, d.depth);
    d.total = nodes[d.root];
    d.step = (unsigned int)counters[RNG];
    d.rows = (unsigned int)slots * (unsigned int)lanes;
    const long long held = counters[FILLED];
    d.filled = held < 0 ? 0 : held < d.rows ? (unsigned int)held : d.rows;
    d.head = (int)counters[HEAD];
    return d;
}

__device__ inline double draw_threshold(const DrawSizes& d, long long i) {
    const double u = philox_uniform(d.seed, (unsigned int)i, d.step, T_SAMPLE).u[0];
    return threshold_of((unsigned int)i, u, d.total, d.strata);
}

// Warp `warp` of `warps` takes a row at a time. `drawn(i, priority, first)` is told of each, by all
// lanes of its warp or group, `first` being true in one.
template <typename DrawnRow>
__device__ inline void sample_rows(const RingArrays& ring, const BatchArrays& batch,
                                   const DrawSizes& d, long long warp, long long warps,
                                   DrawnRow drawn) {
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (long long i = warp; i < d.n; i += warps) {
        const unsigned int row = warp_descend(ring.leaves, ring.nodes, d.leaf_count, d.depth,
                                              d.root, draw_threshold(d, i));
        // What does not wait for anything else is asked for first.
        const unsigned int stamp = lane == 0 ? ring.generation[row] : 0u;
        const int acted = lane == 0 ? ring.action[row] : 0;
        const float priority = ring.leaves[row];
        const RowParts here(ring.state, (int)row, d.width, d.padded);
        const Return found = assemble(row, ring.reward, ring.flags, d.rows, d.filled, d.head,
                                      d.lanes, d.n_step, d.gamma);
        const RowParts there(ring.next_state, found.last, d.width, d.padded);
        drawn(i, priority, lane == 0);
        here.write(batch.state + i * d.padded, ring.state, (int)row, d.width, d.padded);
        there.write(batch.next_state + i * d.padded, ring.next_state, found.last, d.width,
                    d.padded);
        if (lane == 0) {
            batch.index[i] = (int)row;
            batch.generation[i] = stamp;
            batch.action[i] = acted;
            batch.ret[i] = (float)found.total;
            batch.discount[i] = (float)found.carried;
        }
    }
}

// The same by groups, DRAWS rows at a time.
template <typename DrawnRow>
__device__ inline void sample_groups(const RingArrays& ring, const BatchArrays& batch,
                                     const DrawSizes& d, long long warp, long long warps,
                                     DrawnRow drawn) {
    const bool wide = by_fours(ring.state, d.padded) && by_fours(ring.next_state, d.padded) &&
                      by_fours(batch.state, d.padded) && by_fours(batch.next_state, d.padded);
#pragma unroll 1
    for (long long base = warp * DRAWS; base < d.n; base += warps * DRAWS) {
        const long long i = base + (threadIdx.x & 31) / GROUP;
        // A group past the end goes through the motions, for the others' sake, and writes nothing.
        const bool inside = i < d.n, first = inside && (threadIdx.x & (GROUP - 1)) == 0;
        const unsigned int row = group_descend(ring.leaves, ring.nodes, d.leaf_count, d.depth,
                                               d.root, draw_threshold(d, i));
        const unsigned int stamp = first ? ring.generation[row] : 0u;
        const int acted = first ? ring.action[row] : 0;
        const float priority = ring.leaves[row];
        if (inside)
            group_copy(batch.state + i * d.padded, ring.state, (int)row, d.width, d.padded, wide);
        const Return found = group_assemble(row, ring.reward, ring.flags, d.rows, d.filled, d.head,
                                            d.lanes, d.n_step, d.gamma);
        if (inside) {
            group_copy(batch.next_state + i * d.padded, ring.next_state, found.last, d.width,
                       d.padded, wide);
            drawn(i, priority, first);
        }
        if (first) {
            batch.index[i] = (int)row;
            batch.generation[i] = stamp;
            batch.action[i] = acted;
            batch.ret[i] = (float)found.total;
            batch.discount[i] = (float)found.carried;
        }
    }
}
