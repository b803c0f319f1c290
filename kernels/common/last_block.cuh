// Work that the last of several blocks does on what all of them have written.
#pragma once

// Whether this block is the last of `count` to come here with this ticket, and leaves that at 0 for
// the next launch. Called by whole blocks, once for each of the `count`. The last one's threads then
// see what every block wrote before its call; they must read it past the L1 cache (__ldcg) and
// through no __restrict__ pointer.
__device__ inline bool last_of(unsigned int* ticket, unsigned int count) {
    __shared__ bool last;
    __syncthreads();  // what the block writes is written
    if (threadIdx.x == 0) {
        __threadfence();  // and seen before the ticket is
        last = atomicInc(ticket, count - 1) == count - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

// Of all blocks of the grid.
__device__ inline bool last_block(unsigned int* ticket) { return last_of(ticket, gridDim.x); }
