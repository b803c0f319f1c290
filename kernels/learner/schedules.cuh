// The value of a schedule at step k (advance_counters.py: schedule_value).
#pragma once

#include "common/detmath.cuh"
#include "common/layout.cuh"

// `quad` points at (kind, start, end, steps).
__device__ inline double schedule_value(const double* quad, long long k) {
    int kind = (int)quad[0];
    double start = quad[1], end = quad[2], steps = quad[3];
    if (kind == K_CONSTANT) return start;
    double x = steps > 0.0 ? (double)k / steps : 1.0;
    if (!(x < 1.0)) return end;
    if (kind == K_LINEAR) return start + (end - start) * x;
    return end + ((start - end) * 0.5) * (1.0 + det_cospi(x));
}
