// A batch from the draw to the learner's arrays, a warp and a block a row; see draw_rows.py.
#include "common/philox.cuh"
#include "fused/programmatic.cuh"
#include "replay/sampling.cuh"
#include "replay/threshold.cuh"
#include "replay/weights.cuh"

// One warp a block spreads a small batch over the whole GPU: each row is a chain of loads that wait
// for one another, and nothing else.
extern "C" __global__ void __launch_bounds__(32) draw_rows(
    const float* leaves, const double* __restrict__ nodes,
    const unsigned int* __restrict__ generation, const float* __restrict__ ring_state,
    const float* __restrict__ ring_next_state, const int* __restrict__ ring_action,
    const float* __restrict__ ring_reward, const unsigned char* __restrict__ ring_flags,
    const long long* __restrict__ counters, const double* __restrict__ schedule,
    int* __restrict__ index, unsigned int* __restrict__ sampled_generation,
    float* __restrict__ state, float* __restrict__ next_state, int* __restrict__ action,
    float* __restrict__ ret, float* __restrict__ discount, double* __restrict__ raw, int n,
    long long leaf_count, int width, int padded, int lanes, int slots, int n_step, double gamma,
    unsigned long long seed, int strata) {
    start_next_grid();
    const int lane = threadIdx.x;
    const unsigned int leaf_total = (unsigned int)leaf_count;
    const int depth = tree_depth(leaf_total);
    const unsigned int root = tree_offset(leaf_total, depth);
    const double total = nodes[root];
    const unsigned int step = (unsigned int)counters[RNG];
    const unsigned int rows = (unsigned int)slots * (unsigned int)lanes;
    const long long held = counters[FILLED];
    const unsigned int filled = held < 0 ? 0 : held < rows ? (unsigned int)held : rows;
    const int head = (int)counters[HEAD];
    const double beta = schedule[S_BETA];
    for (int i = blockIdx.x; i < n; i += gridDim.x) {
        const double u = philox_uniform(seed, (unsigned int)i, step, T_SAMPLE).u[0];
        const Drawn drawn = warp_draw(leaves, nodes, leaf_total, depth, root,
                                      threshold_of((unsigned int)i, u, total, strata));
        const unsigned int row = drawn.leaf;
        // What does not wait for anything else is asked for first.
        const unsigned int stamp = lane == 0 ? generation[row] : 0u;
        const int acted = lane == 0 ? ring_action[row] : 0;
        const RowParts here(ring_state, (int)row, width, padded);
        const Return found = assemble(row, ring_reward, ring_flags, rows, filled, head, lanes,
                                      n_step, gamma);
        const RowParts there(ring_next_state, found.last, width, padded);
        const double weight = weight_of(drawn.priority, total, (double)held, beta);
        here.write(state + (long long)i * padded, ring_state, (int)row, width, padded);
        there.write(next_state + (long long)i * padded, ring_next_state, found.last, width, padded);
        if (lane == 0) {
            index[i] = (int)row;
            sampled_generation[i] = stamp;
            action[i] = acted;
            ret[i] = (float)found.total;
            discount[i] = (float)found.carried;
            raw[i] = weight;
        }
    }
}
