// Work that the last block of a grid does on what all blocks have written.
#pragma once

// Whether this block is the last of its grid to come here, and leaves the ticket at 0 for the next
// launch. Called by whole blocks, once. The last block's threads then see what every block wrote
// before its call; they must read it past the L1 cache (__ldcg) and through no __restrict__ pointer.
__device__ inline bool last_block(unsigned int* ticket) {
    __shared__ bool last;
    __syncthreads();  // what the block writes is written
    if (threadIdx.x == 0) {
        __threadfence();  // and seen before the ticket is
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}
