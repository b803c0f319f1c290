// The threshold of one draw from its uniform; see philox_thresholds.py.
#pragma once

__device__ inline double threshold_of(unsigned int position, double u, double total, int strata) {
    if (strata <= 0) return u * total;
    return ((double)(position % (unsigned int)strata) + u) * total / (double)strata;
}
