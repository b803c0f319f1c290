// Gradients of a two-layer network's parameters, their norm, Adam, the target, the statistics and the
// priorities in one launch (apply_step.py).
//
// The first block publishes, the last writes the priorities, and those between have a tile of 32 x 32
// parameters at a time; with fewer than three blocks one does all.
// Between the gradients and their use all blocks wait for one another once, for the norm; what a
// block's last tile needs then, it has asked for before, and its gradients have stayed in registers.
#include "fused/grid_barrier.cuh"
#include "learner/gemm.cuh"
#include "learner/publish.cuh"
#include "replay/priorities.cuh"

#define TILE 32
#define TILE_ROWS 64     // of the batch at a time
#define OWN 4            // parameters of a thread in a tile, below one another

// One layer: dW [fan_in, fan_out] = in^T out over the batch, db = the column sums of out.
struct Linear {
    const float *in, *out;  // [n, fan_in], [n, fan_out]
    int fan_in, fan_out;
    int weight, bias;
};

struct Place {
    Linear of;
    int row0, col0;
};

__device__ inline int tiles_of(const Linear& l) {
    return ((l.fan_in + TILE - 1) / TILE) * ((l.fan_out + TILE - 1) / TILE);
}

__device__ inline Place place_of(const Linear* layers, int tile) {
    int which = 0;
    while (which < 2 && tile >= tiles_of(layers[which])) tile -= tiles_of(layers[which++]);
    const Linear l = layers[which];
    const int wide = (l.fan_out + TILE - 1) / TILE;
    return Place{l, tile / wide * TILE, tile % wide * TILE};
}

// Rows [from, from + TILE_ROWS) of up to 32 columns of a matrix [n, width] to `panel`
// [TILE_ROWS][32]; what lies beyond the matrix is left as it was, and is not read as any parameter's.
__device__ inline void load_panel(float* panel, const float* matrix, int n, int width, int from,
                                  int col0) {
    const int columns = min(width - col0, TILE), rows = min(n - from, TILE_ROWS);
    const float* source = matrix + (long long)from * width + col0;
    if (can_load_wide(matrix, width)) {
        const int c = (threadIdx.x & 7) * 4;
        if (c >= columns) return;
#pragma unroll 1
        for (int r = threadIdx.x >> 3; r < rows; r += 32)
            copy_async<16>(panel + r * TILE + c, source + r * width + c, true);
    } else {
        const int c = threadIdx.x & 31;
        if (c >= columns) return;
#pragma unroll 1
        for (int r = threadIdx.x >> 5; r < rows; r += 8)
            copy_async<4>(panel + r * TILE + c, source + r * width + c, true);
    }
}

// A thread's parameters of a tile: OWN of the weight, and one of the bias in the first warp of a tile
// of the first rows. What is not one of the tensor's has no place.
struct Mine {
    int at[OWN + 1];  // -1: none
    float grad[OWN + 1];
    __device__ Mine(const Place& p, bool any) {
        const int warp = threadIdx.x >> 5, col = p.col0 + (threadIdx.x & 31);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int row = p.row0 + warp * OWN + i;
            const bool inside = any && row < p.of.fan_in && col < p.of.fan_out;
            at[i] = inside ? p.of.weight + row * p.of.fan_out + col : -1;
            grad[i] = 0.0f;
        }
        const bool biased = any && p.row0 == 0 && warp == 0 && col < p.of.fan_out;
        at[OWN] = biased ? p.of.bias + col : -1;
        grad[OWN] = 0.0f;
    }
};

// The gradients of a tile, over the batch in order; a bias's over eight parts of each 64 rows.
__device__ inline void gradients(Mine& mine, const Place& p, int n, float* panels, float* sums) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float* in = panels;
    float* out = panels + TILE_ROWS * TILE;
    float column = 0.0f;
    for (int from = 0; from < n; from += TILE_ROWS) {
        __syncthreads();  // the last panels have been read
        load_panel(in, p.of.in, n, p.of.fan_in, from, p.row0);
        load_panel(out, p.of.out, n, p.of.fan_out, from, p.col0);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
        const int rows = min(n - from, TILE_ROWS);
#pragma unroll 4
        for (int b = 0; b < rows; ++b) {
            const float g = out[b * TILE + lane];
            const float4 x = *reinterpret_cast<const float4*>(in + b * TILE + warp * OWN);
            mine.grad[0] = __fmaf_rn(x.x, g, mine.grad[0]);
            mine.grad[1] = __fmaf_rn(x.y, g, mine.grad[1]);
            mine.grad[2] = __fmaf_rn(x.z, g, mine.grad[2]);
            mine.grad[3] = __fmaf_rn(x.w, g, mine.grad[3]);
        }
        if (p.row0 == 0)
#pragma unroll 1
            for (int b = warp * 8; b < min(warp * 8 + 8, rows); ++b) column += out[b * TILE + lane];
    }
    if (p.row0 == 0) {
        sums[warp * TILE + lane] = column;
        __syncthreads();
        if (warp == 0) {
            float total = sums[lane];
#pragma unroll 1
            for (int w = 1; w < 8; ++w) total += sums[w * TILE + lane];
            mine.grad[OWN] = total;
        }
    }
}

struct Adam {
    float *theta, *m, *v, *target;
    float beta1, beta2, eps;
};

// What an update of a thread's parameters reads beside their gradients.
struct State {
    float theta[OWN + 1], m[OWN + 1], v[OWN + 1], target[OWN + 1];
    __device__ void load(const Adam& a, const Mine& mine) {
#pragma unroll
        for (int i = 0; i <= OWN; ++i) {
            const int at = max(mine.at[i], 0);  // of no place, some other parameter's
            theta[i] = a.theta[at];
            m[i] = a.m[at];
            v[i] = a.v[at];
            target[i] = a.target[at];
        }
    }
};

// Factors of a step, the same for all parameters.
struct Step {
    float scale, bias1, bias2, rate, shrink, tau;  // bias1 and bias2: the reciprocals
    bool moves, copies;  // the target: at all; whole
};

// adam_step.cu and target.cuh, element by element; but times the reciprocals of the bias corrections.
__device__ inline void update(const Adam& a, const Mine& mine, const State& s, const Step& step) {
    const float rest1 = 1.0f - a.beta1, rest2 = 1.0f - a.beta2;
#pragma unroll
    for (int i = 0; i <= OWN; ++i) {
        const int at = mine.at[i];
        if (at < 0) continue;
        const float g = mine.grad[i] * step.scale;
        const float mean = a.beta1 * s.m[i] + rest1 * g;
        const float square = a.beta2 * s.v[i] + (rest2 * g) * g;
        const float change = (mean * step.bias1) / (sqrtf(square * step.bias2) + a.eps);
        const float theta = s.theta[i] - step.rate * (change + step.shrink * s.theta[i]);
        a.m[at] = mean;
        a.v[at] = square;
        a.theta[at] = theta;
        if (step.moves)
            a.target[at] = step.copies ? theta : s.target[i] + step.tau * (theta - s.target[i]);
    }
}

struct Clip {
    float norm, scale;  // as clip_factor.py has them
    int skipped;
};

// By each warp for itself: the parts lane by lane, then the lanes in the order of reduce.cuh.
__device__ inline Clip warp_clip(const double* partial, int parts, double max_norm) {
    double sum = 0.0;
#pragma unroll 8
    for (int i = threadIdx.x & 31; i < parts; i += 32) sum += __ldcg(partial + i);
    sum = warp_sum<double>(sum);
    const double norm = sqrt(sum);
    const bool finite = isfinite(norm);
    const double scale = max_norm > 0.0 && norm > max_norm ? max_norm / norm : 1.0;
    return Clip{(float)norm, finite ? (float)scale : 0.0f, finite ? 0 : 1};
}

extern "C" __global__ void __launch_bounds__(256) apply_step(
    const float* state, const float* hidden0, const float* hidden1, const float* grad0,
    const float* grad1, const float* grad_head, float* theta, float* m, float* v, float* target,
    float* grad, double* partial, unsigned int* barrier, float* clip, int* skip,
    const long long* counters, const double* schedule, const float* decay, const float* td,
    const float* loss, const float* q_taken, const int* index,
    const unsigned int* sampled_generation, const unsigned int* generation, float* leaves,
    double* nodes, int* owner, float* max_leaf, long long* diagnostics, const long long* seen,
    double* record,
    double* history, int n, int inputs, int width0, int width1, int stride, int weight0,
    int bias0, int weight1, int bias1, int weight2, int bias2,
    int blocks, double max_norm, float beta1, float beta2, float eps, long long every, int ring,
    int prioritise, long long leaf_count, double alpha, double leaf_eps) {
    __shared__ __align__(16) float panels[2 * TILE_ROWS * TILE];
    __shared__ float sums[8 * TILE];
    __shared__ long long counted[COUNTERS];
    __shared__ double scheduled[SCHEDULES];
    const Linear layers[3] = {{state, grad0, inputs, width0, weight0, bias0},
                              {hidden0, grad1, width0, width1, weight1, bias1},
                              {hidden1, grad_head, width1, stride, weight2, bias2}};
    const int tiles = tiles_of(layers[0]) + tiles_of(layers[1]) + tiles_of(layers[2]);
    const bool alone = gridDim.x < 3, publishes = blockIdx.x == 0;
    const bool prioritises = prioritise && blockIdx.x == (alone ? 0 : gridDim.x - 1);
    const bool works = alone ? publishes : !publishes && blockIdx.x + 1 < gridDim.x;
    const int workers = alone ? 1 : (int)gridDim.x - 2;
    // Only those wait for one another that give gradients or read their norm.
    const unsigned int waiting = alone ? 1u : gridDim.x - 1;
    const Adam adam = {theta, m, v, target, beta1, beta2, eps};
    unsigned int arrived = 0;
    Stats stats = {};

    if (publishes) {
        // It gives no gradients, so that nobody need wait for it.
        if (!alone && threadIdx.x == 0) arrived = grid_arrive(barrier, waiting, true);
        // What is published is fetched before the norm is waited for.
        if (threadIdx.x < COUNTERS) counted[threadIdx.x] = counters[threadIdx.x];
        if (threadIdx.x < SCHEDULES) scheduled[threadIdx.x] = schedule[threadIdx.x];
        stats = block_stats(loss, td, q_taken, n);
    }
    if (prioritises) {
        block_priorities<8>(td, index, sampled_generation, generation, leaves, nodes, owner,
                            max_leaf, diagnostics, n, leaf_count, alpha, leaf_eps);
    }
    if (works) {
        // What this block's last tile holds is asked for first: it comes while the gradients are made.
        const int worker = alone ? 0 : (int)blockIdx.x - 1;
        const int count = worker < tiles ? (tiles - 1 - worker) / workers + 1 : 0;
        const int last = count ? worker + (count - 1) * workers : 0;
        Mine mine(place_of(layers, last), count > 0);
        State before;
        before.load(adam, mine);
#pragma unroll 1
        for (int tile = worker; tile < tiles; tile += workers) {
            const Place p = place_of(layers, tile);
            mine = Mine(p, true);
            gradients(mine, p, n, panels, sums);
            double squares = 0.0;
#pragma unroll
            for (int i = 0; i <= OWN; ++i) {
                if (mine.at[i] < 0) continue;
                grad[mine.at[i]] = mine.grad[i];
                squares += (double)mine.grad[i] * (double)mine.grad[i];
            }
            squares = block_sum(squares);
            if (threadIdx.x == 0) partial[tile] = squares;
        }
        Step step;
        step.bias1 = 1.0f / (float)schedule[S_BIAS], step.bias2 = 1.0f / (float)schedule[S_BIAS + 1];
        step.rate = (float)schedule[S_LEARNING_RATE], step.tau = (float)schedule[S_TAU];
        step.moves = every <= 0 || counters[ADAM_TRUNK] % every == 0;
        step.copies = every > 0 || step.tau == 1.0f;
        step.shrink = decay[ADAM_TRUNK];
        __syncthreads();
        if (threadIdx.x == 0) grid_wait(barrier, grid_arrive(barrier, waiting, alone));
        __syncthreads();
        const Clip clipped = warp_clip(partial, tiles, max_norm);
        const bool skipped = clipped.skipped;
        step.scale = clipped.scale;
        // From the last tile, which is at hand, to the first.
#pragma unroll 1
        for (int tile = last; count && !skipped;) {
            update(adam, mine, before, step);
            tile -= workers;
            if (tile < 0) break;
            mine = Mine(place_of(layers, tile), true);
#pragma unroll
            for (int i = 0; i <= OWN; ++i) mine.grad[i] = grad[max(mine.at[i], 0)];
            before.load(adam, mine);
        }
    }
    if (publishes) {
        if (!alone && threadIdx.x == 0) grid_wait(barrier, arrived);
        __syncthreads();
        const Clip clipped = warp_clip(partial, tiles, max_norm);
        if (threadIdx.x == 0) {
            clip[0] = clipped.norm, clip[1] = clipped.scale;
            skip[0] = clipped.skipped;
            publish_record(stats, clip, counted, scheduled, seen, skip, record, history, ring);
        }
    }
}
