// Publishing a step's numbers to pinned host memory and to the history ring (publish.py).
#pragma once
#include "common/layout.cuh"
#include "learner/record.cuh"
#include "learner/stats.cuh"

// By one thread.
__device__ inline void publish_record(const Stats& stats, const float* clip,
                                      const long long* counters, const double* schedule,
                                      const long long* diagnostics, const int* skip,
                                      double* record, double* history, int ring) {
    long long step = counters[RNG];
    double values[RECORD];
    values[R_STAMP_BEGIN] = (double)step;
    values[R_LOSS] = stats.loss;
    values[R_GRAD_NORM] = (double)clip[0];
    values[R_TD_MEAN] = stats.td_mean;
    values[R_Q_MEAN] = stats.q_mean;
    values[R_TD_MAX] = stats.td_max;
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
