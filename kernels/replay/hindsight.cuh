// What hindsight makes of a drawn row, by one warp; see hindsight_assemble.py.
#pragma once
#include "common/layout.cuh"
#include "common/philox.cuh"

// Rows whose rewards and goals are asked for at once: they do not depend on one another.
#define ROWS_IN_FLIGHT 4

#define ALL_LANES 0xffffffffu

enum Strategy { H_FUTURE = 1, H_FINAL = 2, H_RANDOM = 3 };

struct Ring {
    const float* reward;
    const unsigned char* flags;
    const long long* episode;
    const float* next_state;
    int lanes, slots, padded, head;
    unsigned int rows, filled;
};

struct Hindsight {
    int n_step, achieved, width, strategy;
    double gamma, share;
    unsigned long long seed;
    unsigned int step;
};

struct Relabelled {
    int last, donor;
    double total, carried;
};

// A row's index fits an int (capacities are below 2^31); unsigned, a row plus a lane's way does.
__device__ inline Ring ring_of(const float* reward, const unsigned char* flags,
                               const long long* episode, const float* next_state,
                               const long long* counters, int lanes, int slots, int padded) {
    Ring ring = {reward, flags, episode, next_state, lanes, slots, padded};
    const long long held = counters[FILLED];
    ring.rows = (unsigned int)slots * (unsigned int)lanes;
    ring.filled = held < 0 ? 0 : held < ring.rows ? (unsigned int)held : ring.rows;
    ring.head = (int)((counters[HEAD] % slots + slots) % slots);
    return ring;
}

// The row `k` steps after `row` in its lane, for a k below the slots.
__device__ inline unsigned int row_after(const Ring& ring, unsigned int row, int k) {
    const unsigned int at = row + (unsigned int)k * (unsigned int)ring.lanes;
    return at >= ring.rows ? at - ring.rows : at;
}

// How many of the `limit` rows from `row` on are of its episode.
__device__ inline int rows_of_episode(const Ring& ring, unsigned int row, int limit) {
    const int thread = threadIdx.x & 31;
    const long long own = ring.episode[row];
    int span = 0;
    for (int base = 0; base < limit; base += 32) {
        const int k = base + thread;
        bool closed = k >= limit, ends = false;
        if (!closed) {
            const unsigned int at = row_after(ring, row, k);
            const unsigned char mark = ring.flags[at];
            closed = (mark & F_INVALID) != 0 || ring.episode[at] != own;
            ends = !closed && (mark & (F_TERMINATED | F_TRUNCATED)) != 0;
        }
        const int before = __ffs((int)__ballot_sync(ALL_LANES, closed));  // 0: none
        const int upto = __ffs((int)__ballot_sync(ALL_LANES, ends));
        const int open = before ? before - 1 : 32;
        span = base + (upto && upto <= open ? upto : open);
        if (before || upto) break;
    }
    return span;
}

// Position `i` of a batch of n drew `row`; `drawn_at(j)` is what position j drew.
template <class DrawnAt>
__device__ inline Relabelled relabel(const Ring& ring, const Hindsight& with, long long i, int n,
                                     unsigned int row, DrawnAt drawn_at) {
    Relabelled found = {-1, -1, 0.0, 0.0};
    if (row >= ring.filled) return found;
    found.last = (int)row;
    const int thread = threadIdx.x & 31;
    const Uniform2 drawn = philox_uniform(with.seed, (unsigned int)i, with.step, T_HINDSIGHT);
    bool relabelled = drawn.u[0] < with.share;
    const int ahead = ring.head - (int)(row / (unsigned int)ring.lanes);
    const int reach = ahead > 0 ? ahead : ahead + ring.slots;
    // Only as far as the return reaches, where no donor is taken from further on.
    const bool whole = relabelled && with.strategy != H_RANDOM;
    const int span = rows_of_episode(ring, row, whole || reach < with.n_step ? reach : with.n_step);

    relabelled = relabelled && span > 0;
    if (relabelled && with.strategy == H_RANDOM) {
        relabelled = n > 1;
        if (relabelled) {
            long long other = (long long)(drawn.u[1] * (double)(n - 1));
            other = other < n - 1 ? other : n - 2;
            other += other >= i;
            const unsigned int taken = drawn_at(other);
            relabelled = taken < ring.filled && !(ring.flags[taken] & F_INVALID);
            if (relabelled) found.donor = (int)taken;
        }
    } else if (relabelled) {
        int k = span - 1;
        if (with.strategy == H_FUTURE) {
            const int chosen = (int)(drawn.u[1] * (double)span);
            k = chosen < k ? chosen : k;
        }
        found.donor = (int)row_after(ring, row, k);
    }

    const long long padded = ring.padded;
    const float* achieved = ring.next_state + with.achieved;
    const float* goal = achieved + (relabelled ? found.donor : 0) * padded;
    const int taken = span < with.n_step ? span : with.n_step;
    double power = 1.0;
    bool reached = false;
    for (int first = 0; !reached && first < taken; first += ROWS_IN_FLIGHT) {
        unsigned int at[ROWS_IN_FLIGHT];
        float gained[ROWS_IN_FLIGHT];
        bool equal[ROWS_IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
            at[u] = row_after(ring, row, first + u < taken ? first + u : 0);
            gained[u] = relabelled ? -1.0f : ring.reward[at[u]];
            equal[u] = relabelled;
        }
        if (relabelled) {
            for (int c = thread; c < with.width; c += 32) {
                const float wanted = goal[c];
#pragma unroll
                for (int u = 0; u < ROWS_IN_FLIGHT; ++u)
                    equal[u] = equal[u] && achieved[at[u] * padded + c] == wanted;
            }
        }
#pragma unroll
        for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
            const bool there = __all_sync(ALL_LANES, equal[u]);
            if (reached || first + u >= taken) continue;
            reached = there;
            found.total = __dadd_rn(found.total,
                                    __dmul_rn(power, (double)(there ? 0.0f : gained[u])));
            power = __dmul_rn(power, with.gamma);
            found.last = (int)at[u];
        }
    }
    const bool stops = relabelled ? reached : (ring.flags[found.last] & F_TERMINATED) != 0;
    found.carried = taken > 0 && !stops ? power : 0.0;
    return found;
}
