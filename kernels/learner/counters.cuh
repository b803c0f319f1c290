// A learning step's counters and schedule values, by one warp (advance_counters.py).
#pragma once
#include "learner/schedules.cuh"

// One thread's work in sequence would be fourteen dependent powers, several microseconds; the lanes
// of one warp take one value each.
__device__ inline void advance_learning(long long* counters, double* schedule,
                                        const double* params, const int* skip) {
    const int lane = threadIdx.x & 31;
    const int corrections = 2 * ADAM_GROUPS;
    bool skipped = skip[0] != 0;
    long long k = counters[RNG], warm = counters[WARM_UP];
    long long warm_steps = (long long)params[P_WARM_UP_STEPS];
    long long t = lane < corrections ? counters[lane >> 1] + (skipped ? 0 : 1) : 0;
    __syncwarp();  // every lane has read before one writes
    if (lane < corrections) {
        double beta = (double)(float)params[P_ADAM_BETA1 + (lane & 1)];
        schedule[S_BIAS + lane] = 1.0 - det_pow(beta, (double)t);
        if ((lane & 1) == 0) counters[lane >> 1] = t;
    } else if (lane == corrections) {
        schedule[S_TAU] = schedule_value(params + P_TAU, k);
    } else if (lane == corrections + 1) {
        schedule[S_BETA] = schedule_value(params + P_BETA, k + 1);
    } else if (lane == corrections + 2) {
        double rate = schedule_value(params + P_LEARNING_RATE, k);
        if (warm < warm_steps) rate = rate * ((double)(warm + 1) / (double)warm_steps);
        schedule[S_LEARNING_RATE] = rate;
        counters[RNG] = k + 1;
        counters[WARM_UP] = warm + 1 < warm_steps ? warm + 1 : warm_steps;
        if (skipped) counters[SKIPPED] += 1;
        counters[SKIPPED_IN_A_ROW] = skipped ? counters[SKIPPED_IN_A_ROW] + 1 : 0;
    }
}
