// The norm of a step's gradient from sums over its parts, before these are scaled and added
// (update_step.py). The order of every sum depends on the parameters' layout alone.
#pragma once
#include "fused/parameter_tiles.cuh"
#include "learner/budget.cuh"
#include "learner/reduce.cuh"

// Products of three gradients: the heads' g, the denoising loss' a, the vaccine's v.
enum Term { GG = 0, GA = 1, AA = 2, GV = 3, AV = 4, VV = 5 };
#define TERMS 6
#define TERM_SLOTS 8  // a power of two
#define WARPS_OF_BLOCK (BLOCK_THREADS / 32)
#define LARGEST_FLOAT 3.4028234663852886e38

// The sums over a warp of SLOTS values, of which every lane gets one: the lane's top bits say which.
// Each is added in the order of warp_sum.
template <int SLOTS>
__device__ inline double spread_sum(double (&values)[SLOTS]) {
    const int lane = threadIdx.x & 31;
    int width = 16;
#pragma unroll
    for (int half = SLOTS / 2; half; half >>= 1, width >>= 1) {
        const bool upper = lane & width;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const double kept = upper ? values[i + half] : values[i];
            const double given = upper ? values[i] : values[i + half];
            values[i] = kept + __shfl_xor_sync(0xffffffffu, given, width);
        }
    }
    for (; width; width >>= 1) values[0] += __shfl_xor_sync(0xffffffffu, values[0], width);
    return values[0];
}

template <int SLOTS>
__device__ inline bool has_slot() {
    return (threadIdx.x & (32 / SLOTS - 1)) == 0;
}

template <int SLOTS>
__device__ inline int its_slot() {
    return (threadIdx.x & 31) / (32 / SLOTS);
}

// What a thread's four floats of each gradient add to the terms of their tile, as a warp's sums in
// `sums` [warp][TERM_SLOTS].
template <int SLOTS>
__device__ inline void add_terms(double* sums, const float4* slot, const Arrays& a) {
    double terms[SLOTS] = {};
    float g[4], aux[4] = {}, vaccine[4] = {};
    unpack(g, slot[0]);
    if (SLOTS > 1) {
        if (a.with_aux) unpack(aux, *(slot += BLOCK_THREADS));
        if (a.with_vaccine) unpack(vaccine, *(slot += BLOCK_THREADS));
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const double own = (double)g[j], extra = (double)aux[j], other = (double)vaccine[j];
        terms[GG] += own * own;
        if (SLOTS == 1) continue;
        terms[GA % SLOTS] += own * extra;
        terms[AA % SLOTS] += extra * extra;
        terms[GV % SLOTS] += own * other;
        terms[AV % SLOTS] += extra * other;
        terms[VV % SLOTS] += other * other;
    }
    const double sum = spread_sum<SLOTS>(terms);
    if (has_slot<SLOTS>()) sums[(threadIdx.x >> 5) * TERM_SLOTS + its_slot<SLOTS>()] = sum;
}

// The sums of the tiles of `count` rounds, from those of the warps in `sums` [count][warp][slot];
// by the block. A tile's warps are added in order.
__device__ inline void write_terms(double* partial, const double* sums, int count, int terms,
                                   int first_tile, int stride, int tiles) {
    const int a_team = WARPS_OF_BLOCK / TEAMS;
    for (int i = threadIdx.x; i < count * TEAMS * terms; i += BLOCK_THREADS) {
        const int term = i % terms, team = i / terms % TEAMS, round = i / terms / TEAMS;
        const int tile = first_tile + round * stride + team;
        if (tile >= tiles) continue;
        const double* warp = sums + (round * WARPS_OF_BLOCK + team * a_team) * TERM_SLOTS + term;
        double sum = warp[0];
#pragma unroll
        for (int w = 1; w < a_team; ++w) sum += warp[w * TERM_SLOTS];
        partial[(long long)tile * terms + term] = sum;
    }
}

// The terms of each group, `totals` [group][slot], from those of the tiles, by the block: a warp has
// every WARPS_OF_BLOCK-th row of 32 tiles, and adds a row's tiles group by group. `columns`
// [warp][group][slot]. ROWS of a warp are asked for at once.
template <int SLOTS, int ROWS>
__device__ inline void add_tiles(double* totals, double* columns, const double* partial, int tiles,
                                 const Groups& groups) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int terms = SLOTS == 1 ? 1 : TERMS;
    for (int i = threadIdx.x; i < WARPS_OF_BLOCK * ADAM_GROUPS * TERM_SLOTS; i += BLOCK_THREADS)
        columns[i] = 0.0;
    __syncthreads();
#pragma unroll 1
    for (int row0 = warp; row0 * 32 < tiles; row0 += WARPS_OF_BLOCK * ROWS) {
        double found[ROWS][SLOTS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int tile = (row0 + r * WARPS_OF_BLOCK) * 32 + lane;
#pragma unroll
            for (int s = 0; s < SLOTS; ++s)
                found[r][s] = s < terms && tile < tiles
                                  ? __ldcg(partial + (long long)tile * terms + s)
                                  : 0.0;
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int tile = (row0 + r * WARPS_OF_BLOCK) * 32;
            if (tile >= tiles) break;
            const int last = groups.of(min(tile + 31, tiles - 1));
            const int mine = tile + lane < tiles ? groups.of(tile + lane) : -1;
#pragma unroll 1
            for (int k = groups.of(tile); k <= last; ++k) {
                double values[SLOTS];
#pragma unroll
                for (int s = 0; s < SLOTS; ++s) values[s] = mine == k ? found[r][s] : 0.0;
                const double sum = spread_sum<SLOTS>(values);
                if (has_slot<SLOTS>())
                    columns[(warp * ADAM_GROUPS + k) * TERM_SLOTS + its_slot<SLOTS>()] += sum;
            }
        }
    }
    __syncthreads();
    if (threadIdx.x < ADAM_GROUPS * TERM_SLOTS) {
        double sum = columns[threadIdx.x];
#pragma unroll 4
        for (int w = 1; w < WARPS_OF_BLOCK; ++w)
            sum += columns[w * ADAM_GROUPS * TERM_SLOTS + threadIdx.x];
        totals[threadIdx.x] = sum;
    }
    __syncthreads();
}

// What is done with the gradient of a step, in shared memory.
struct Verdict {
    float scale[ADAM_GROUPS];  // of `grad`, by group
    float norms[COMPONENTS], scales[COMPONENTS];
    float extra;      // scale of `aux`
    double factor;    // of the vaccine's gradient, which is taken away; 0: none
    float norm, clip; // as clip_factor.py has them
    int skip;

    // By one warp, from the terms of the groups.
    __device__ void reach(const double* totals, const double* shares, bool with_aux,
                          double budget_norm, double max_norm) {
        const int lane = threadIdx.x & 31;
        const bool is_group = lane < ADAM_GROUPS;
        const double* of = totals + (is_group ? lane : 0) * TERM_SLOTS;
        const double gg = is_group ? of[GG] : 0.0, ga = is_group ? of[GA] : 0.0;
        const double aa = is_group ? of[AA] : 0.0, gv = is_group ? of[GV] : 0.0;
        const double av = is_group ? of[AV] : 0.0, vv = is_group ? of[VV] : 0.0;
        const double aux = warp_sum(aa);
        const double q = __shfl_sync(0xffffffffu, gg, ADAM_TRUNK) +
                         __shfl_sync(0xffffffffu, gg, ADAM_IQN);
        const int component = component_of(lane);
        double square = gg;
        if (component == C_Q) square = q;
        if (component == C_DENOISE) square = gg + aux;
        const double length = sqrt(square);
        const float own = is_group ? budget_scale(length, shares[component], budget_norm) : 0.0f;
        const float more =
            with_aux ? __shfl_sync(0xffffffffu, own, ADAM_DENOISE) : 0.0f;
        // Of the two groups of a component one stands for it.
        const bool stands = is_group && lane != ADAM_IQN;

        // Of own g + more a: its square, and its product with v. What has no scale is not looked at.
        const double s = (double)own, e = (double)more;
        double norm = 0.0, cross = 0.0;
        if (own != 0.0f) norm += s * s * gg, cross += s * gv;
        if (more != 0.0f && is_group) norm += e * e * aa, cross += e * av;
        if (own != 0.0f && more != 0.0f) norm += 2.0 * s * e * ga;
        norm = warp_sum(norm);
        cross = warp_sum(cross);
        const double vaccine = warp_sum(vv);
        const bool conflict =
            cross < 0.0 && isfinite(cross) && isfinite(vaccine) && vaccine > 0.0;
        const double away = conflict ? cross / vaccine : 0.0;
        if (conflict) norm -= away * cross;
        norm = norm < 0.0 ? 0.0 : sqrt(norm);
        // A sum of terms, each within float32, can be beyond it.
        double bound = warp_sum(stands && own != 0.0f ? s * length : 0.0);
        if (conflict) bound *= 2.0;
        const bool beyond = (with_aux || conflict) && bound > LARGEST_FLOAT;
        const bool finite = isfinite(norm) && !beyond;
        if (is_group) scale[lane] = own;
        if (stands) norms[component] = (float)length, scales[component] = own;
        if (lane == 0) {
            const double clipped = max_norm > 0.0 && norm > max_norm ? max_norm / norm : 1.0;
            this->norm = (float)norm;
            clip = finite ? (float)clipped : 0.0f;
            skip = finite ? 0 : 1;
            extra = more;
            factor = away;
        }
    }
};
