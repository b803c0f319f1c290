// The per-step counters and schedule values of either program, by one warp (advance_counters.py).
#include "learner/counters.cuh"

extern "C" __global__ void advance_counters(long long* __restrict__ counters,
                                            double* __restrict__ schedule,
                                            const double* __restrict__ params,
                                            const int* __restrict__ skip, int program, int lanes,
                                            int slots) {
    int lane = threadIdx.x;
    if (blockIdx.x != 0 || lane >= 32) return;
    if (program == 1) {
        if (lane != 0) return;
        long long collected = counters[COLLECT] + 1;
        long long filled = counters[FILLED] + lanes, capacity = (long long)slots * lanes;
        counters[COLLECT] = collected;
        counters[HEAD] = (counters[HEAD] + 1) % slots;
        counters[FILLED] = filled < capacity ? filled : capacity;
        schedule[S_EPSILON] = schedule_value(params + P_EPSILON, collected);
        return;
    }
    if (program != 0) return;

    advance_learning(counters, schedule, params, skip);
}
