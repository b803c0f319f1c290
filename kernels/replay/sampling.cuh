// A drawn row on its way from the ring to the batch, by one warp (sample_batch.py).
#pragma once
#include "common/layout.cuh"
#include "replay/tree.cuh"

// What a row's n-step return comes to.
struct Return {
    int last;
    double total, carried;
};

// By one warp, a step a lane: the flags and rewards of 32 steps are asked for at once, and are then
// gone through in order. The state of the ring is nstep_assemble's.
__device__ inline Return assemble(unsigned int row, const float* reward,
                                  const unsigned char* flags, unsigned int rows,
                                  unsigned int filled, int head, int lanes, int n_step,
                                  double gamma) {
    Return found = {-1, 0.0, 0.0};
    if (row >= filled) return found;
    const int lane = threadIdx.x & 31;
    found.last = (int)row;
    double power = 1.0;
    bool open = true;
    for (int first = 0; open && first < n_step; first += 32) {
        const int step = first + lane;
        const unsigned long long ahead = (unsigned long long)step * (unsigned int)lanes;
        // Both terms are below 2^31, so that the sum fits.
        unsigned int at = row + (unsigned int)(ahead < rows ? ahead : ahead % rows);
        if (at >= rows) at -= rows;
        const bool within = step < n_step;
        const unsigned char mark = within ? flags[at] : (unsigned char)F_INVALID;
        const float gain = within ? reward[at] : 0.0f;
        const bool at_head = step > 0 && (int)(at / (unsigned int)lanes) == head;
        const unsigned int closed = __ballot_sync(WHOLE_WARP, (mark & F_INVALID) || at_head);
        const unsigned int ends =
            __ballot_sync(WHOLE_WARP, (mark & (F_TERMINATED | F_TRUNCATED)) != 0);
        // Steps before the first closed one, and up to the first that ends an episode.
        const int before = closed ? __ffs(closed) - 1 : 32;
        const int through = ends ? __ffs(ends) : 32;
        const int taken = before < through ? before : through;
        for (int u = 0; u < taken; ++u) {
            const double gained = (double)__shfl_sync(WHOLE_WARP, gain, u);
            found.total = __dadd_rn(found.total, __dmul_rn(power, gained));
            power = __dmul_rn(power, gamma);
        }
        if (taken > 0) {
            found.last = (int)__shfl_sync(WHOLE_WARP, at, taken - 1);
            const int last_mark = __shfl_sync(WHOLE_WARP, (int)mark, taken - 1);
            found.carried = last_mark & F_TERMINATED ? 0.0 : power;
        }
        open = !closed && !ends;
    }
    return found;
}

// A row's first columns on their way, four a lane of one warp: asked for at once, and written later.
// Columns from `width` on are zeros, and so is a negative row.
#define HELD 4
struct RowParts {
    float value[HELD];
    __device__ RowParts(const float* ring, int row, int width, int padded) {
        const float* source = ring + (long long)row * padded;
#pragma unroll
        for (int u = 0; u < HELD; ++u) {
            const int column = (threadIdx.x & 31) + 32 * u;
            value[u] = row >= 0 && column < width ? source[column] : 0.0f;
        }
    }
    __device__ void write(float* __restrict__ to, const float* ring, int row, int width,
                          int padded) const {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int u = 0; u < HELD; ++u)
            if (lane + 32 * u < padded) to[lane + 32 * u] = value[u];
        const float* source = ring + (long long)row * padded;
#pragma unroll 4
        for (int column = lane + 32 * HELD; column < padded; column += 32)
            to[column] = row >= 0 && column < width ? source[column] : 0.0f;
    }
};
