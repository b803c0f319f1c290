// A learning step's counters and schedule values, by one warp (advance_counters.py).
#pragma once

#include "learner/schedules.cuh"

// What a lane will write of them.
struct NextStep {
    double value;      // of the schedule
    long long count;   // a group's Adam counter, or the RNG counter
    long long warm;
    bool skipped;
};

#define CORRECTIONS (2 * ADAM_GROUPS)  // lanes below it have an Adam correction each

// One thread's work in sequence would be fourteen dependent powers, several microseconds; the lanes
// of one warp take one value each.
__device__ inline NextStep next_step(const long long* counters, const double* params,
                                     const int* skip) {
    const int lane = threadIdx.x & 31;
    NextStep next = {0.0, 0, counters[WARM_UP], skip[0] != 0};
    const long long k = counters[RNG], warm_steps = (long long)params[P_WARM_UP_STEPS];
    if (lane < CORRECTIONS) {
        next.count = counters[lane >> 1] + (next.skipped ? 0 : 1);
        const double beta = (double)(float)params[P_ADAM_BETA1 + (lane & 1)];
        next.value = 1.0 - det_pow(beta, (double)next.count);
    } else if (lane == CORRECTIONS) {
        next.value = schedule_value(params + P_TAU, k);
    } else if (lane == CORRECTIONS + 1) {
        next.value = schedule_value(params + P_BETA, k + 1);
    } else if (lane == CORRECTIONS + 2) {
        double rate = schedule_value(params + P_LEARNING_RATE, k);
        if (next.warm < warm_steps) rate = rate * ((double)(next.warm + 1) / (double)warm_steps);
        next.value = rate;
        next.count = k + 1;
        next.warm = next.warm + 1 < warm_steps ? next.warm + 1 : warm_steps;
    }
    return next;
}

// By the same warp, when nobody reads the old ones any more.
__device__ inline void store_step(const NextStep& next, long long* counters, double* schedule) {
    const int lane = threadIdx.x & 31;
    if (lane < CORRECTIONS) {
        schedule[S_BIAS + lane] = next.value;
        if ((lane & 1) == 0) counters[lane >> 1] = next.count;
    } else if (lane == CORRECTIONS) {
        schedule[S_TAU] = next.value;
    } else if (lane == CORRECTIONS + 1) {
        schedule[S_BETA] = next.value;
    } else if (lane == CORRECTIONS + 2) {
        schedule[S_LEARNING_RATE] = next.value;
        counters[RNG] = next.count;
        counters[WARM_UP] = next.warm;
        if (next.skipped) counters[SKIPPED] += 1;
        counters[SKIPPED_IN_A_ROW] = next.skipped ? counters[SKIPPED_IN_A_ROW] + 1 : 0;
    }
}

__device__ inline void advance_learning(long long* counters, double* schedule,
                                        const double* params, const int* skip) {
    const NextStep next = next_step(counters, params, skip);
    __syncwarp();  // every lane has read before one writes
    store_step(next, counters, schedule);
}
