// A batch from the draw to the learner's arrays, a warp a row; see sample_batch.py.
#include "common/last_block.cuh"
#include "common/layout.cuh"
#include "common/philox.cuh"
#include "replay/threshold.cuh"
#include "replay/tree.cuh"
#include "replay/weights.cuh"

// What a row's n-step return comes to.
struct Return {
    int last;
    double total, carried;
};

// By one warp, a step a lane: the flags and rewards of 32 steps are asked for at once, and are then
// gone through in order. The state of the ring is nstep_assemble's.
__device__ inline Return assemble(unsigned int row, const float* reward,
                                  const unsigned char* flags, unsigned int rows,
                                  unsigned int filled, int head, int lanes, int n_step,
                                  double gamma) {
    Return found = {-1, 0.0, 0.0};
    if (row >= filled) return found;
    const int lane = threadIdx.x & 31;
    found.last = (int)row;
    double power = 1.0;
    bool open = true;
    for (int first = 0; open && first < n_step; first += 32) {
        const int step = first + lane;
        const unsigned long long ahead = (unsigned long long)step * (unsigned int)lanes;
        // Both terms are below 2^31, so that the sum fits.
        unsigned int at = row + (unsigned int)(ahead < rows ? ahead : ahead % rows);
        if (at >= rows) at -= rows;
        const bool within = step < n_step;
        const unsigned char mark = within ? flags[at] : (unsigned char)F_INVALID;
        const float gain = within ? reward[at] : 0.0f;
        const bool at_head = step > 0 && (int)(at / (unsigned int)lanes) == head;
        const unsigned int closed = __ballot_sync(WHOLE_WARP, (mark & F_INVALID) || at_head);
        const unsigned int ends =
            __ballot_sync(WHOLE_WARP, (mark & (F_TERMINATED | F_TRUNCATED)) != 0);
        // Steps before the first closed one, and up to the first that ends an episode.
        const int before = closed ? __ffs(closed) - 1 : 32;
        const int through = ends ? __ffs(ends) : 32;
        const int taken = before < through ? before : through;
        for (int u = 0; u < taken; ++u) {
            const double gained = (double)__shfl_sync(WHOLE_WARP, gain, u);
            found.total = __dadd_rn(found.total, __dmul_rn(power, gained));
            power = __dmul_rn(power, gamma);
        }
        if (taken > 0) {
            found.last = (int)__shfl_sync(WHOLE_WARP, at, taken - 1);
            const int last_mark = __shfl_sync(WHOLE_WARP, (int)mark, taken - 1);
            found.carried = last_mark & F_TERMINATED ? 0.0 : power;
        }
        open = !closed && !ends;
    }
    return found;
}

// Row `row` of `from`, zeros beyond `width`, by one warp; a negative row is zeros.
__device__ inline void copy_row(float* __restrict__ to, const float* __restrict__ from, int row,
                                int width, int padded) {
    const float* source = from + (long long)row * padded;
#pragma unroll 4
    for (int column = threadIdx.x & 31; column < padded; column += 32)
        to[column] = row >= 0 && column < width ? source[column] : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) sample_batch(
    const float* leaves, const double* __restrict__ nodes,
    const unsigned int* __restrict__ generation, const float* __restrict__ ring_state,
    const float* __restrict__ ring_next_state, const int* __restrict__ ring_action,
    const float* __restrict__ ring_reward, const unsigned char* __restrict__ ring_flags,
    const long long* __restrict__ counters, const double* __restrict__ schedule, int* index,
    unsigned int* __restrict__ sampled_generation, float* __restrict__ state,
    float* __restrict__ next_state, int* __restrict__ action, float* __restrict__ ret,
    float* __restrict__ discount, float* weights, unsigned int* ticket, int n,
    long long leaf_count, int width, int padded, int lanes, int slots, int n_step, double gamma,
    unsigned long long seed, int strata, int weigh) {
    const int lane = threadIdx.x & 31;
    const unsigned int leaf_total = (unsigned int)leaf_count;
    const int depth = tree_depth(leaf_total);
    const unsigned int root = tree_offset(leaf_total, depth);
    const double total = nodes[root];
    const unsigned int step = (unsigned int)counters[RNG];
    const unsigned int rows = (unsigned int)slots * (unsigned int)lanes;
    const long long held = counters[FILLED];
    const unsigned int filled = held < 0 ? 0 : held < rows ? (unsigned int)held : rows;
    const int head = (int)counters[HEAD];
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    for (long long i = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5); i < n;
         i += warps) {
        const double u = philox_uniform(seed, (unsigned int)i, step, T_SAMPLE).u[0];
        const double threshold = threshold_of((unsigned int)i, u, total, strata);
        const unsigned int row =
            warp_descend(leaves, nodes, leaf_total, depth, root, threshold);
        // Asked for before the return is gone through, and written after it.
        const unsigned int stamp = lane == 0 ? generation[row] : 0u;
        const int acted = lane == 0 ? ring_action[row] : 0;
        copy_row(state + i * padded, ring_state, (int)row, width, padded);
        const Return found = assemble(row, ring_reward, ring_flags, rows, filled, head, lanes,
                                      n_step, gamma);
        copy_row(next_state + i * padded, ring_next_state, found.last, width, padded);
        if (lane == 0) {
            index[i] = (int)row;
            sampled_generation[i] = stamp;
            action[i] = acted;
            ret[i] = (float)found.total;
            discount[i] = (float)found.carried;
        }
    }
    if (weigh && last_block(ticket))
        block_weights(leaves, total, index, counters, schedule, weights, n, leaf_count);
}
