// A barrier of `blocks` blocks of a grid that all run at once (cooperative launch).
//
// The word counts to 2^31 in steps of which one is as long as it takes for all of them to sum to
// that: its top bit flips when the last block arrives, and the rest of it is 0 again. So one word
// serves any number of launches, of any number of blocks each.
#pragma once

// By one thread of each block, after a barrier of the block; `first` is true in one block only.
// Returns what `grid_wait` takes.
__device__ inline unsigned int grid_arrive(unsigned int* word, unsigned int blocks, bool first) {
    __threadfence();
    return atomicAdd(word, first ? 0x80000000u - (blocks - 1) : 1u);
}

// By the same thread: waits until all have arrived. What they wrote before is then seen by the
// block's threads after another barrier of the block, past the L1 cache (__ldcg).
__device__ inline void grid_wait(unsigned int* word, unsigned int arrived) {
    while (((atomicAdd(word, 0u) ^ arrived) & 0x80000000u) == 0) ;;
    __threadfence();
}

// By all threads of all blocks.
__device__ inline void grid_barrier(unsigned int* word) {
    __syncthreads();
    if (threadIdx.x == 0) grid_wait(word, grid_arrive(word, gridDim.x, blockIdx.x == 0));
    __syncthreads();
}
