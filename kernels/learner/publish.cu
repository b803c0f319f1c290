// Publish a step's numbers to pinned host memory, and keep them in the history ring (publish.py).
#include "learner/publish.cuh"

extern "C" __global__ void publish(const double* __restrict__ stats, const float* __restrict__ clip,
                                   const long long* __restrict__ counters,
                                   const double* __restrict__ schedule,
                                   const long long* __restrict__ diagnostics,
                                   const int* __restrict__ skip, double* record,
                                   double* __restrict__ history, int ring) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    const Stats found = {stats[0], stats[1], stats[2], stats[3]};
    publish_record(found, clip, counters, schedule, diagnostics, skip, record, history, ring);
}
