// Several draws a warp, each by a group of neighbouring lanes (sample_batch.py): what warp_draw and
// assemble give, to the bit.
//
// A warp a draw spends most of its instructions on what all its lanes do alike, and most of a batch
// that is many times the GPU's warps waits for its turn. A lane with eight of a node's children adds
// three of the scan's five strides by itself.
#pragma once
#include "common/layout.cuh"
#include "replay/sampling.cuh"
#include "replay/tree.cuh"

#define GROUP 4                      // lanes of a draw
#define DRAWS (32 / GROUP)           // draws of a warp at a time
#define CHILDREN (FAN_OUT / GROUP)   // children of a lane: GROUP apart, the first its own number

// Called by whole warps; the lanes of a group with one threshold. As warp_draw, child by child.
__device__ inline unsigned int group_descend(const float* leaves, const double* nodes,
                                             unsigned int leaf_count, int depth, unsigned int root,
                                             double t) {
    const int lane = threadIdx.x & (GROUP - 1);
    if (isnan(t)) t = 0.0;
    unsigned int at = 0, below = root;
#pragma unroll 1
    for (int level = depth; level >= 1; --level) {
        const unsigned int children = tree_size(leaf_count, level - 1);
        below -= level > 1 ? children : 0;
        // Of a node's children so many are this lane's and those after it; the last node's are fewer.
        const unsigned int first = at * FAN_OUT + lane;
        const int left = (int)(children - first);
        double scan[CHILDREN];
        if (level > 1) {
            const double* child = nodes + below + first;
#pragma unroll
            for (int k = 0; k < CHILDREN; ++k)
                scan[k] = k * GROUP < left ? child[k * GROUP] : 0.0;
        } else {
            const float* child = leaves + first;
#pragma unroll
            for (int k = 0; k < CHILDREN; ++k)
                scan[k] = k * GROUP < left ? (double)child[k * GROUP] : 0.0;
        }
        // A bit a child, at its place for the first lane; the others' are moved when all are known.
        unsigned int positive = 0, fits = 0;
#pragma unroll
        for (int k = 0; k < CHILDREN; ++k)
            if (scan[k] > 0.0) positive |= 1u << (k * GROUP);
        // Strides within a group: a lane's predecessor is another's, and for the first lanes it is
        // the last lanes' child before.
#pragma unroll
        for (int stride = 1; stride < GROUP; stride *= 2) {
            const int of = (lane - stride) & (GROUP - 1);
            double from = __shfl_sync(WHOLE_WARP, scan[CHILDREN - 1], of, GROUP);
#pragma unroll
            for (int k = CHILDREN - 1; k >= 0; --k) {
                const double before =
                    k > 0 ? __shfl_sync(WHOLE_WARP, scan[k > 0 ? k - 1 : 0], of, GROUP) : 0.0;
                const double other = lane >= stride ? from : before;
                if (k > 0 || lane >= stride) scan[k] = __dadd_rn(scan[k], other);
                from = before;
            }
        }
        // And beyond one: its own children, from the last, so that each adds what was there before.
#pragma unroll
        for (int apart = 1; apart < CHILDREN; apart *= 2) {
#pragma unroll
            for (int k = CHILDREN - 1; k >= apart; --k)
                scan[k] = __dadd_rn(scan[k], scan[k - apart]);
        }
#pragma unroll
        for (int k = 0; k < CHILDREN; ++k)
            if (t < scan[k]) fits |= 1u << (k * GROUP);
        fits = (fits & positive) << lane;
        positive <<= lane;
#pragma unroll
        for (int stride = 1; stride < GROUP; stride *= 2) {
            positive |= __shfl_xor_sync(WHOLE_WARP, positive, stride);
            fits |= __shfl_xor_sync(WHOLE_WARP, fits, stride);
        }
        const int child = fits ? __ffs(fits) - 1 : (positive ? 31 - __clz(positive) : 0);
        const int last = child > 0 ? child - 1 : 0;
        // Halving, not indexing: an index would put the scan into local memory.
#pragma unroll
        for (int half = CHILDREN / 2; half > 0; half /= 2)
#pragma unroll
            for (int k = 0; k < half; ++k)
                scan[k] = last / GROUP & half ? scan[k + half] : scan[k];
        const double before = __shfl_sync(WHOLE_WARP, scan[0], last & (GROUP - 1), GROUP);
        if (child > 0) t = __dsub_rn(t, before);
        at = at * FAN_OUT + child;
    }
    return at;
}

// By groups, whole warps of them: a step a lane.
__device__ inline Return group_assemble(unsigned int row, const float* reward,
                                        const unsigned char* flags, unsigned int rows,
                                        unsigned int filled, int head, int lanes, int n_step,
                                        double gamma) {
    Return found = {-1, 0.0, 0.0};
    const int lane = threadIdx.x & (GROUP - 1);
    const int group = (threadIdx.x & 31) - lane;
    bool open = row < filled;
    if (open) found.last = (int)row;
    double power = 1.0;
#pragma unroll 1
    for (int first = 0; first < n_step && __any_sync(WHOLE_WARP, open); first += GROUP) {
        const int step = first + lane;
        const bool within = open && step < n_step;
        unsigned int at = row;
        if (within) {
            const unsigned long long ahead = (unsigned long long)step * (unsigned int)lanes;
            // Both terms are below 2^31, so that the sum fits.
            at += (unsigned int)(ahead < rows ? ahead : ahead % rows);
            if (at >= rows) at -= rows;
        }
        const unsigned char mark = within ? flags[at] : (unsigned char)F_INVALID;
        const float gain = within ? reward[at] : 0.0f;
        const bool at_head = within && step > 0 && (int)(at / (unsigned int)lanes) == head;
        const unsigned int whole = (1u << GROUP) - 1;
        const unsigned int closed =
            (__ballot_sync(WHOLE_WARP, (mark & F_INVALID) || at_head) >> group) & whole;
        const unsigned int ends =
            (__ballot_sync(WHOLE_WARP, (mark & (F_TERMINATED | F_TRUNCATED)) != 0) >> group) &
            whole;
        // Steps before the first closed one, and up to the first that ends an episode.
        const int before = closed ? __ffs(closed) - 1 : GROUP;
        const int through = ends ? __ffs(ends) : GROUP;
        const int taken = before < through ? before : through;
#pragma unroll
        for (int u = 0; u < GROUP; ++u) {
            const double gained = (double)__shfl_sync(WHOLE_WARP, gain, u, GROUP);
            if (u < taken) {
                found.total = __dadd_rn(found.total, __dmul_rn(power, gained));
                power = __dmul_rn(power, gamma);
            }
        }
        const int of = taken > 0 ? taken - 1 : 0;
        const unsigned int last = __shfl_sync(WHOLE_WARP, at, of, GROUP);
        const int last_mark = __shfl_sync(WHOLE_WARP, (int)mark, of, GROUP);
        if (taken > 0) {
            found.last = (int)last;
            found.carried = last_mark & F_TERMINATED ? 0.0 : power;
        }
        open = open && !closed && !ends;
    }
    return found;
}

// Row `row` of `from`, zeros beyond `width`, by one group; a negative row is zeros. `wide`: both rows
// begin at, and have, multiples of four floats.
__device__ inline void group_copy(float* __restrict__ to, const float* __restrict__ from, int row,
                                  int width, int padded, bool wide) {
    const int lane = threadIdx.x & (GROUP - 1);
    const float* source = from + (long long)row * padded;
    if (wide) {
#pragma unroll 4
        for (int c = 4 * lane; c < padded; c += 4 * GROUP) {
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (row >= 0 && c < width) v = *reinterpret_cast<const float4*>(source + c);
            if (c + 1 >= width) v.y = 0.0f;
            if (c + 2 >= width) v.z = 0.0f;
            if (c + 3 >= width) v.w = 0.0f;
            *reinterpret_cast<float4*>(to + c) = v;
        }
    } else {
#pragma unroll 1
        for (int c = lane; c < padded; c += GROUP)
            to[c] = row >= 0 && c < width ? source[c] : 0.0f;
    }
}

// Whether an array of rows can be read and written by fours.
__device__ inline bool by_fours(const float* rows, int padded) {
    return ((size_t)rows & 15) == 0 && (padded & 3) == 0;
}
