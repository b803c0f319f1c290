// A batch under its goals with its weights, and the step's counters, in one launch; see
// draw_relabelled.py.
#include "fused/weigh.cuh"
#include "replay/relabelled_rows.cuh"

extern "C" __global__ void __launch_bounds__(128, 8) draw_relabelled(
    const float* leaves, const double* __restrict__ nodes,
    const unsigned int* __restrict__ generation, const float* __restrict__ ring_state,
    const float* __restrict__ ring_next_state, const int* __restrict__ ring_action,
    const float* __restrict__ ring_reward, const unsigned char* __restrict__ ring_flags,
    const long long* __restrict__ ring_episode,
    long long* counters, double* schedule, const double* __restrict__ params,
    const int* __restrict__ skip, int* __restrict__ index,
    unsigned int* __restrict__ sampled_generation, float* __restrict__ state,
    float* __restrict__ next_state, int* __restrict__ action, float* __restrict__ ret,
    float* __restrict__ discount, float* weights, double* raw, double* largest,
    unsigned int* barrier, int n, long long leaf_count, int width, int padded, int lanes, int slots,
    int n_step, double gamma, unsigned long long seed, int strata, int achieved, int goal, int goal_width,
    int strategy, double share, int blocks) {
    const RingArrays arrays = {leaves,      nodes,       generation, ring_state, ring_next_state,
                               ring_action, ring_reward, ring_flags};
    const BatchArrays batch = {index, sampled_generation, state, next_state, action, ret, discount};
    const DrawSizes d = draw_sizes(nodes, counters, n, leaf_count, width, padded, lanes, slots,
                                   n_step, gamma, seed, strata);
    const long long warp = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5);
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    Weighing weighing(d.total, counters, schedule);
    const auto weigh = [&](long long i, float priority, bool first) {
        const double weight = weighing.raw(priority);
        if (first) raw[i] = weight;
    };
    const Ring ring = ring_of(ring_reward, ring_flags, ring_episode, ring_next_state, counters,
                              lanes, slots, padded);
    relabelled_rows(arrays, batch, d, ring, GoalColumns{achieved, goal, goal_width}, strategy, share,
                    warp, warps, weigh);
    finish_draw(weighing.most, raw, weights, largest, barrier, n, counters, schedule, params, skip);
}
