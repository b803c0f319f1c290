// A batch under its goals, from the draw to the learner's arrays; see sample_relabelled.py.
#include "common/last_block.cuh"
#include "replay/relabelled_rows.cuh"
#include "replay/weights.cuh"

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
    const RingArrays arrays = {leaves,      nodes,       generation, ring_state, ring_next_state,
                               ring_action, ring_reward, ring_flags};
    const BatchArrays batch = {index, sampled_generation, state, next_state, action, ret, discount};
    const DrawSizes d = draw_sizes(nodes, counters, n, leaf_count, width, padded, lanes, slots,
                                   n_step, gamma, seed, strata);
    const Ring ring = ring_of(ring_reward, ring_flags, ring_episode, ring_next_state, counters,
                              lanes, slots, padded);
    const long long warp = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5);
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    relabelled_rows(arrays, batch, d, ring, GoalColumns{achieved, goal, goal_width}, strategy, share,
                    warp, warps, [](long long, float, bool) {});
    if (weigh && last_block(ticket))
        block_weights(leaves, d.total, index, counters, schedule, weights, n, leaf_count);
}
