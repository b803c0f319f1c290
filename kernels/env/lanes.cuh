// What the environments share (lanes.py).
#pragma once

#include "common/layout.cuh"
#include "common/philox.cuh"

// One of 0..count-1 by the lane's reset draw of its `episode`-th episode; 0 when count < 1.
__device__ inline long long reset_draw(unsigned long long seed, long long lane, long long episode,
                                       long long count) {
    if (count < 1) return 0;
    double u = philox_uniform(seed, (unsigned int)lane, (unsigned int)episode, T_RESET).u[0];
    long long index = (long long)(u * (double)count);
    return index < count ? index : count - 1;
}

__device__ inline long long clamp_index(long long index, long long count) {
    return index < 0 ? 0 : (index < count ? index : count - 1);
}
