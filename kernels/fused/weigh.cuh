// What ends a batch's draw when all blocks have drawn: its weights, and the step's counters.
#pragma once
#include "fused/grid_barrier.cuh"
#include "learner/counters.cuh"
#include "replay/weights.cuh"

// The weights of a batch that is being drawn, before they are scaled; the largest of a thread's.
struct Weighing {
    double total, filled, beta, most;
    __device__ Weighing(double total, const long long* counters, const double* schedule)
        : total(total), filled((double)counters[FILLED]), beta(schedule[S_BETA]), most(0.0) {}
    __device__ double raw(float priority) {
        const double weight = weight_of((double)priority, total, filled, beta);
        most = fmax(most, weight);
        return weight;
    }
};

// By all blocks of a grid that run at once: `most` is each thread's largest of `raw` [n]. Of the two
// places of `largest` the barrier's top bit names this launch's, which is 0 before; the other is
// zeroed for the next. The last block advances the counters, which all have read by then.
__device__ inline void finish_draw(double most, const double* raw, float* weights, double* largest,
                                   unsigned int* barrier, int n, long long* counters,
                                   double* schedule, const double* params, const int* skip) {
    __shared__ unsigned int turn;
    most = block_largest(most);
    if (threadIdx.x == 0) {
        turn = __ldcg(barrier) >> 31;  // it flips when all have arrived, this block too
        // The bits of numbers that are not negative order as they do.
        if (most > 0.0)
            atomicMax((unsigned long long*)largest + turn,
                      (unsigned long long)__double_as_longlong(most));
        if (blockIdx.x == 0) largest[turn ^ 1] = 0.0;
    }
    const bool advances = blockIdx.x == gridDim.x - 1 && threadIdx.x < 32;
    NextStep next;
    if (advances) next = next_step(counters, params, skip);
    grid_barrier(barrier);
    if (advances) store_step(next, counters, schedule);
    const double all = __ldcg(largest + turn);
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x)
        weights[i] = scaled_weight(__ldcg(raw + i), all);
}
