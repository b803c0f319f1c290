// Publish a step's numbers to pinned host memory, and keep them in the history ring (publish.py).
#include "common/layout.cuh"
#include "learner/record.cuh"

extern "C" __global__ void publish(const double* __restrict__ stats, const float* __restrict__ clip,
                                   const long long* __restrict__ counters,
                                   const double* __restrict__ schedule,
                                   const long long* __restrict__ diagnostics,
                                   const int* __restrict__ skip, double* record,
                                   double* __restrict__ history, int ring) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    long long step = counters[RNG];
    double values[RECORD];
    values[R_STAMP_BEGIN] = (double)step;
    values[R_LOSS] = stats[0];
    values[R_GRAD_NORM] = (double)clip[0];
    values[R_TD_MEAN] = stats[1];
    values[R_Q_MEAN] = stats[2];
    values[R_TD_MAX] = stats[3];
    values[R_LEARNING_RATE] = schedule[S_LEARNING_RATE];
    values[R_TAU] = schedule[S_TAU];
    values[R_BETA] = schedule[S_BETA];
    values[R_EPSILON] = schedule[S_EPSILON];
    values[R_ADAM_STEP] = (double)counters[ADAM_TRUNK];
    values[R_SKIPPED] = (double)(counters[SKIPPED] + (skip[0] != 0 ? 1 : 0));
    values[R_NONFINITE_TD] = (double)diagnostics[D_NONFINITE_TD];
    values[R_STALE_UPDATE] = (double)diagnostics[D_STALE_UPDATE];
    values[R_INVALID_ROW] = (double)diagnostics[D_INVALID_ROW];
    values[R_SKIPPED_IN_A_ROW] = skip[0] != 0 ? (double)(counters[SKIPPED_IN_A_ROW] + 1) : 0.0;
    values[R_STAMP_END] = (double)step;

    if (ring > 0 && step > 0) {
        long long row = (step - 1) % ring * RECORD;
        for (int i = 0; i < RECORD; ++i) history[row + i] = values[i];
    }
    volatile double* out = record;
    out[R_STAMP_BEGIN] = values[R_STAMP_BEGIN];
    __threadfence_system();
    for (int i = R_STAMP_BEGIN + 1; i < R_STAMP_END; ++i) out[i] = values[i];
    __threadfence_system();
    out[R_STAMP_END] = values[R_STAMP_END];
}
