// What a row's advantage over the value networks scales its TD error by (iql_modulate.py).
#pragma once
#include "common/detmath.cuh"

struct Advantage {
    const float *q, *v_hi, *v_lo;
    double k, eps, low, high;
};

// Of row i: the TD error, scaled.
__device__ inline float modulated(const Advantage& a, float td, long long i) {
    const double largest_exponent = 20.0;
    const double lower = (double)a.v_lo[i];
    double spread = (double)a.v_hi[i] - lower;
    if (spread < 0.0) spread = 0.0;  // a NaN stays one
    const double exponent = (a.k * ((double)a.q[i] - lower)) / (spread + a.eps);
    double factor = det_exp(exponent > largest_exponent ? largest_exponent : exponent);
    if (factor < a.low) factor = a.low;
    if (factor > a.high) factor = a.high;
    return (float)((double)td * factor);
}
