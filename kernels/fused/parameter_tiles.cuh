// Tiles of the parameters, and what a block keeps of them in shared memory (update_step.py).
//
// A tile is of one Adam group: each group's range is cut into tiles of its own, the last of which may
// be short. A team of threads has a tile at a time, four neighbouring parameters a thread. What a
// thread copies to shared memory it alone reads, so that no barrier of the block is needed for it.
#pragma once
#include "common/layout.cuh"
#include "learner/gemm.cuh"

#define BLOCK_THREADS 512
#define TEAM 256
#define TEAMS (BLOCK_THREADS / TEAM)
#define TEAM_FLOATS (4 * TEAM)
#define MOST_HELD 7

// Where the groups and their tiles begin, in shared memory.
struct Groups {
    long long begin[ADAM_GROUPS], end[ADAM_GROUPS];
    __align__(16) int first[ADAM_GROUPS + 1];

    // By one thread.
    __device__ void place(const long long (&ends)[ADAM_GROUPS]) {
        long long at = 0;
        int tile = 0;
#pragma unroll
        for (int k = 0; k < ADAM_GROUPS; ++k) {
            begin[k] = at;
            if (ends[k] > at) at = ends[k];
            end[k] = at;
            first[k] = tile;
            tile += (int)((at - begin[k] + TEAM_FLOATS - 1) / TEAM_FLOATS);
        }
        first[ADAM_GROUPS] = tile;
    }

    __device__ int of(int tile) const {
        int k = 0;
#pragma unroll
        for (int next = 1; next < ADAM_GROUPS; ++next) k += tile >= first[next];
        return k;
    }
};

// The arrays of the parameters, and which of them the step has.
struct Arrays {
    float* grad;
    const float *aux, *vaccine;
    float *theta, *m, *v, *target;
    bool with_aux, with_vaccine;
    int vaccinated;  // bits: the groups in which the vaccine's gradient counts

    __device__ int gradients() const { return 1 + with_aux + with_vaccine; }

    // Whether each of them begins at a multiple of 16 bytes.
    __device__ bool aligned() const {
        const unsigned long long all =
            (unsigned long long)grad | (unsigned long long)theta | (unsigned long long)m |
            (unsigned long long)v | (unsigned long long)target |
            (with_aux ? (unsigned long long)aux : 0) |
            (with_vaccine ? (unsigned long long)vaccine : 0);
        return (all & 15) == 0;
    }
};

// A thread's four parameters of a tile.
struct Four {
    long long at;
    int group, count;  // how many of the four there are
    bool wide;         // they are moved together

    __device__ Four(const Groups& groups, int tile, int tiles, bool aligned) {
        group = groups.of(tile);
        const long long start =
            groups.begin[group] + (long long)(tile - groups.first[group]) * TEAM_FLOATS;
        at = start + 4 * (threadIdx.x % TEAM);
        const long long left = tile < tiles ? groups.end[group] - at : 0;
        count = left > 4 ? 4 : (left > 0 ? (int)left : 0);
        if (count == 0) at = 0;
        wide = count == 4 && aligned && (start & 3) == 0;
    }
};

// Starts the copy of the first `count` of four floats, and of zeros for the others.
__device__ inline void fetch(float4* to, const float* from, int count, bool wide) {
    float* floats = reinterpret_cast<float*>(to);
    if (wide && count > 0) {
        copy_async<16>(floats, from, true);
        return;
    }
#pragma unroll 1
    for (int j = 0; j < 4; ++j)
        copy_async<4>(floats + j, j < count ? from + j : from, j < count);
}

// The gradients, to the first places of a thread's slot. The denoising group's range of `grad` is not
// read where its gradient is in `aux`, nor the vaccine's where it does not count.
__device__ inline void fetch_gradients(float4* slot, const Arrays& a, const Four& f) {
    fetch(slot, a.grad + f.at, a.with_aux && f.group == ADAM_DENOISE ? 0 : f.count, f.wide);
    if (a.with_aux) fetch(slot += BLOCK_THREADS, a.aux + f.at, f.count, f.wide);
    if (a.with_vaccine)
        fetch(slot += BLOCK_THREADS, a.vaccine + f.at, a.vaccinated >> f.group & 1 ? f.count : 0,
              f.wide);
}

// What Adam and the target read beside, to the places behind.
__device__ inline void fetch_state(float4* slot, const Arrays& a, const Four& f) {
    if (f.count == 0) return;
    slot += a.gradients() * BLOCK_THREADS;
    fetch(slot, a.theta + f.at, f.count, f.wide);
    fetch(slot + BLOCK_THREADS, a.m + f.at, f.count, f.wide);
    fetch(slot + 2 * BLOCK_THREADS, a.v + f.at, f.count, f.wide);
    fetch(slot + 3 * BLOCK_THREADS, a.target + f.at, f.count, f.wide);
}

__device__ inline void unpack(float (&floats)[4], const float4& four) {
    floats[0] = four.x, floats[1] = four.y, floats[2] = four.z, floats[3] = four.w;
}

__device__ inline void store(float* to, const float (&values)[4], const Four& f) {
    if (f.wide) {
        *reinterpret_cast<float4*>(to + f.at) =
            make_float4(values[0], values[1], values[2], values[3]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
        if (j < f.count) to[f.at + j] = values[j];
}
