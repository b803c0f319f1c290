// Categorical return distributions over a warp's lanes, float64 (categorical.py).
#pragma once
#include "common/detmath.cuh"
#include "learner/warp_sum.cuh"

#define MAX_ATOMS 256

__device__ inline double atom_distance(int atoms, double v_min, double v_max) {
    return (v_max - v_min) / (double)(atoms - 1);
}

// Logit of atom k of action a in a head row [(A + d) K].
__device__ inline double atom_logit(const float* row, int a, int k, int actions, int atoms,
                                    int dueling) {
    double taken = (double)row[a * atoms + k];
    if (!dueling) return taken;
    double total = (double)row[k];
    for (int j = 1; j < actions; ++j) total += (double)row[j * atoms + k];
    return ((double)row[actions * atoms + k] + taken) - total / (double)actions;
}

// Largest of the lanes' values, in every lane. A NaN may be passed over: its exponential is NaN.
__device__ inline double warp_max(double value) {
    for (int width = 16; width; width >>= 1) {
        double other = __shfl_xor_sync(ALL_LANES, value, width);
        value = other > value ? other : value;
    }
    return value;
}

// Leaves x = logit - max in `x` and exp(x) in `e` (which may be `x`), lane l having atoms l, l + 32,
// ...; `x` holds the logits. Returns the sum of e, in every lane.
__device__ inline double softmax_parts(double* x, double* e, int atoms) {
    const int lane = threadIdx.x & 31;
    double top = __longlong_as_double(0xfff0000000000000LL), total = 0.0;
    for (int k = lane; k < atoms; k += 32) top = x[k] > top ? x[k] : top;
    top = warp_max(top);
    for (int k = lane; k < atoms; k += 32) {
        const double shifted = x[k] - top;
        const double power = det_exp(shifted);
        x[k] = shifted;
        e[k] = power;
        total += power;
    }
    return warp_sum(total);
}

// Share of an atom at b (in atoms from the first) that atom i gets.
__device__ inline double share_of(double b, int i) {
    const double near = 1.0 - fabs(b - (double)i);
    return near < 0.0 ? 0.0 : near;
}

__device__ inline double clamp_place(double b, int atoms) {
    const double last = (double)(atoms - 1);
    return b < 0.0 ? 0.0 : (b > last ? last : b);
}

// A term of the sum of m log: 0 for an atom without mass, whatever its logarithm.
__device__ inline double weighted_log(double mass, double logarithm) {
    return mass == 0.0 ? 0.0 : mass * logarithm;
}
