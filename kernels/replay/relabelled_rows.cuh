// The rows of a batch under their goals, from the draw to the learner's arrays, by a warp each.
#pragma once
#include "replay/hindsight.cuh"
#include "replay/sample_rows.cuh"

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

// Which columns of a state say what was achieved, and which hold the goal.
struct GoalColumns {
    int achieved, goal, width;
};

// Warp `warp` of `warps` takes a row at a time; `drawn` is sample_rows'.
template <typename DrawnRow>
__device__ inline void relabelled_rows(const RingArrays& arrays, const BatchArrays& batch,
                                       const DrawSizes& d, const Ring& ring,
                                       const GoalColumns& columns, int strategy, double share,
                                       long long warp, long long warps, DrawnRow drawn) {
    const int lane = threadIdx.x & 31;
    const Hindsight with = {d.n_step, columns.achieved, columns.width, strategy,
                            d.gamma,  share,            d.seed,        d.step};
    // Any position's draw can be made again, so that no warp waits for another's.
    const auto drawn_at = [=](long long other) {
        return warp_descend(arrays.leaves, arrays.nodes, d.leaf_count, d.depth, d.root,
                            draw_threshold(d, other));
    };
    for (long long i = warp; i < d.n; i += warps) {
        const unsigned int row = drawn_at(i);
        const unsigned int stamp = lane == 0 ? arrays.generation[row] : 0u;
        const int acted = lane == 0 ? arrays.action[row] : 0;
        const float priority = arrays.leaves[row];
        const Relabelled found = relabel(ring, with, i, d.n, row, drawn_at);
        drawn(i, priority, lane == 0);
        const float* given = nullptr;
        if (found.donor >= 0)
            given = arrays.next_state + (long long)found.donor * d.padded + columns.achieved;
        copy_relabelled(batch.state + i * d.padded, arrays.state, (int)row, given, d.width,
                        d.padded, columns.goal, columns.width);
        copy_relabelled(batch.next_state + i * d.padded, arrays.next_state, found.last, given,
                        d.width, d.padded, columns.goal, columns.width);
        if (lane == 0) {
            batch.index[i] = (int)row;
            batch.generation[i] = stamp;
            batch.action[i] = acted;
            batch.ret[i] = (float)found.total;
            batch.discount[i] = (float)found.carried;
        }
    }
}
