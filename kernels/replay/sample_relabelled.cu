// A batch under its goals, from the draw to the learner's arrays; see sample_relabelled.py.
#include "common/last_block.cuh"
#include "replay/hindsight.cuh"
#include "replay/threshold.cuh"
#include "replay/tree.cuh"
#include "replay/weights.cuh"

// Row `row` of `from`, zeros beyond `width`, by one warp; a negative row is zeros. The columns of the
// goal are those of `given`, unless that is null.
__device__ inline void copy_relabelled(float* __restrict__ to, const float* from, int row,
                                       const float* given, int width, int padded, int goal,
                                       int goal_width) {
    const float* source = from + (long long)row * padded;
    for (int column = threadIdx.x & 31; column < padded; column += 32) {
        const bool of_goal = column >= goal && column - goal < goal_width;
        float value = 0.0f;
        if (row >= 0 && column < width)
            value = given && of_goal ? given[column - goal] : source[column];
        to[column] = value;
    }
}

extern "C" __global__ void __launch_bounds__(256) sample_relabelled(
    const float* leaves, const double* __restrict__ nodes,
    const unsigned int* __restrict__ generation, const float* __restrict__ ring_state,
    const float* __restrict__ ring_next_state, const int* __restrict__ ring_action,
    const float* __restrict__ ring_reward, const unsigned char* __restrict__ ring_flags,
    const long long* __restrict__ ring_episode, const long long* __restrict__ counters,
    const double* __restrict__ schedule, int* index, unsigned int* __restrict__ sampled_generation,
    float* __restrict__ state, float* __restrict__ next_state, int* __restrict__ action,
    float* __restrict__ ret, float* __restrict__ discount, float* weights, unsigned int* ticket,
    int n, long long leaf_count, int width, int padded, int lanes, int slots, int n_step,
    double gamma, unsigned long long seed, int strata, int weigh, int achieved, int goal,
    int goal_width, int strategy, double share) {
    const int lane = threadIdx.x & 31;
    const unsigned int leaf_total = (unsigned int)leaf_count;
    const int depth = tree_depth(leaf_total);
    const unsigned int root = tree_offset(leaf_total, depth);
    const double total = nodes[root];
    const unsigned int step = (unsigned int)counters[RNG];
    const Ring ring = ring_of(ring_reward, ring_flags, ring_episode, ring_next_state, counters,
                              lanes, slots, padded);
    const Hindsight with = {n_step, achieved, goal_width, strategy, gamma, share, seed, step};
    // Any position's draw can be made again, so that no warp waits for another's.
    const auto drawn_at = [=](long long other) {
        const double u = philox_uniform(seed, (unsigned int)other, step, T_SAMPLE).u[0];
        const double threshold = threshold_of((unsigned int)other, u, total, strata);
        return warp_descend(leaves, nodes, leaf_total, depth, root, threshold);
    };
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    for (long long i = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5); i < n;
         i += warps) {
        const unsigned int row = drawn_at(i);
        const unsigned int stamp = lane == 0 ? generation[row] : 0u;
        const int acted = lane == 0 ? ring_action[row] : 0;
        const Relabelled found = relabel(ring, with, i, n, row, drawn_at);
        const float* given = nullptr;
        if (found.donor >= 0)
            given = ring_next_state + (long long)found.donor * padded + achieved;
        copy_relabelled(state + i * padded, ring_state, (int)row, given, width, padded, goal,
                        goal_width);
        copy_relabelled(next_state + i * padded, ring_next_state, found.last, given, width, padded,
                        goal, goal_width);
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
