// Components of the gradient budget, and their scales (budget.py).
#pragma once
#include "common/layout.cuh"
#include "learner/reduce.cuh"

enum Component { C_Q = 0, C_IQL_HIGH = 1, C_IQL_LOW = 2, C_DENOISE = 3, C_ATTENTION = 4,
                 C_SELECTIVITY = 5 };
#define COMPONENTS 6
#define AUX_COLUMN ADAM_GROUPS
#define NORM_COLUMNS (ADAM_GROUPS + 1)

__device__ inline int component_of(int group) {
    switch (group) {
        case ADAM_SELECTIVITY: return C_SELECTIVITY;
        case ADAM_DENOISE: return C_DENOISE;
        case ADAM_IQL: return C_IQL_HIGH;
        case ADAM_IQL_LOW: return C_IQL_LOW;
        case ADAM_ATTENTION: return C_ATTENTION;
        default: return C_Q;
    }
}

// The component's sum of squares from the sums of the columns.
__device__ inline double component_square(const double* sums, int component) {
    switch (component) {
        case C_Q: return sums[ADAM_TRUNK] + sums[ADAM_IQN];
        case C_IQL_HIGH: return sums[ADAM_IQL];
        case C_IQL_LOW: return sums[ADAM_IQL_LOW];
        case C_DENOISE: return sums[ADAM_DENOISE] + sums[AUX_COLUMN];
        case C_ATTENTION: return sums[ADAM_ATTENTION];
        default: return sums[ADAM_SELECTIVITY];
    }
}

__device__ inline float budget_scale(double norm, double share, double max_norm) {
    if (!(share > 0.0)) return 0.0f;
    double cap = share * max_norm;
    if (!(max_norm > 0.0) || !isfinite(norm) || norm <= cap) return 1.0f;
    return (float)(cap / norm);
}

__device__ inline float scaled(float value, float scale) { return scale != 0.0f ? value * scale : 0.0f; }
