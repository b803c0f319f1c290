// Sums over one warp in one stated order (see warp_sum.py); every lane of the warp must take part.
#pragma once

#define ALL_LANES 0xffffffffu

// Sum of the lanes' partial sums, in every lane.
template <typename Real>
__device__ inline Real warp_sum(Real partial) {
    for (int width = 16; width; width >>= 1) {
        partial += __shfl_down_sync(ALL_LANES, partial, width);
    }
    return __shfl_sync(ALL_LANES, partial, 0);
}
