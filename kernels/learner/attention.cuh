// What the kernels of attention share: tiles that a warp copies into its shared memory.
#pragma once
#include "common/async_copy.cuh"

#define ATTENTION_WARPS 2  // of a block

// Starts to copy `runs` runs of `each` floats, `apart` apart, to `tile`, where GROUP runs stand side by
// side and groups `stride` apart. By a whole warp, which then calls `tiles_copied`.
template <int GROUP>
__device__ inline void copy_tile(float* tile, const float* from, unsigned int runs,
                                 unsigned int each, unsigned int apart, unsigned int stride) {
    unsigned int lane = threadIdx.x & 31, run = lane / each, c = lane % each;
    unsigned int more_runs = 32 / each, more = 32 % each;
#pragma unroll 1
    while (run < runs) {
        copy_async<4>(tile + run / GROUP * stride + run % GROUP * each + c,
                      from + (long long)run * apart + c, true);
        run += more_runs;
        c += more;
        if (c >= each) {
            c -= each;
            ++run;
        }
    }
}

__device__ inline void tiles_copied() {
    commit_copies();
    wait_copies<0>();
    __syncwarp();
}
