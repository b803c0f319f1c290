// A batch from the draw to the learner's arrays, a warp a row; see sample_batch.py.
#include "common/last_block.cuh"
#include "common/philox.cuh"
#include "replay/sampling.cuh"
#include "replay/threshold.cuh"
#include "replay/weights.cuh"

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
