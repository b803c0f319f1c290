// The leaf of a TD error (Schaul et al. 2016, section 3.3); see update_priorities.py.
#pragma once
#include "common/detmath.cuh"

__device__ inline float priority_leaf(float td, double alpha, double eps) {
    return __double2float_rn(det_pow(__dadd_rn(fabs((double)td), eps), alpha));
}

// Whether the leaf may be written.
__device__ inline bool usable_leaf(float td, float leaf) {
    return isfinite(td) && isfinite(leaf) && leaf >= 0.0f;
}
