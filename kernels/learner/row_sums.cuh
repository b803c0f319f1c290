// Float32 sums along and across the rows of a matrix, in stated orders (see row_sums.py).
#pragma once

// Columns that a block of 256 threads adds, and row lanes of each: thread t has column t & 7 of the
// tile and lane t >> 3. Eight floats are one memory sector.
#define TILE_COLUMNS 8
#define ROW_LANES 32

// The sum of 32 lanes' values, in every lane.
__device__ inline float warp_sum(float value) {
    for (int width = 16; width; width >>= 1) value += __shfl_xor_sync(0xffffffffu, value, width);
    return value;
}

// The sum of a column's 32 lanes, in threads 0..7 (one a column). The whole block of 256 takes part.
__device__ inline float tile_column_sum(float value) {
    __shared__ float warps[8][TILE_COLUMNS];
    value += __shfl_xor_sync(0xffffffffu, value, 16);
    value += __shfl_xor_sync(0xffffffffu, value, 8);
    __syncthreads();  // the last call's readers are done
    if ((threadIdx.x & 31) < TILE_COLUMNS) warps[threadIdx.x >> 5][threadIdx.x & 31] = value;
    __syncthreads();
    float total = 0.0f;
    if (threadIdx.x < TILE_COLUMNS) {
        for (int warp = 0; warp < 8; ++warp) total += warps[warp][threadIdx.x];
    }
    return total;
}
