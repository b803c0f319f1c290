// The logistic function and its slope in float64 (sigmoid.py).
#pragma once
#include "common/detmath.cuh"

struct Sigmoid { double value, slope; };

__device__ inline Sigmoid sigmoid64(double x) {
    double value = __ddiv_rn(1.0, det_add(1.0, det_exp(-x)));
    return Sigmoid{value, det_mul(value, det_add(1.0, -value))};
}
