// From the gradients of the parameters to what a step leaves behind: budget, vaccine, norm, Adam, the
// target, the record, readiness and modulation in one launch (update_step.py).
//
// The first block publishes, and the teams of the others share the tiles of the parameters; a lone
// block does both. Between the gradients and their use all blocks wait for one another once. A
// block holds its last tiles in shared memory meanwhile, and what Adam reads of them is under way.
#include "fused/gradient_norm.cuh"
#include "fused/grid_barrier.cuh"
#include "fused/parameter_tiles.cuh"
#include "learner/advantage.cuh"
#include "learner/publish.cuh"
#include "learner/readiness.cuh"

struct Adam {
    float beta1, beta2, eps, rate, tau;
    bool moves, copies;  // the target: at all; whole
};

// A group's reciprocals of the bias corrections, and its decay.
struct Bias {
    float first[ADAM_GROUPS], second[ADAM_GROUPS], shrink[ADAM_GROUPS];
};

// apply_budget.cu, project_gradient.cu, adam_step.cu and target.cuh, element by element; but times
// the reciprocals of the bias corrections.
__device__ inline void update(const float4* slot, const Arrays& a, const Four& f, const Adam& adam,
                              const Bias& bias, const Verdict& verdict) {
    if (f.count == 0) return;
    float g[4], aux[4] = {}, vaccine[4] = {}, theta[4], m[4], v[4], target[4];
    unpack(g, slot[0]);
    if (a.with_aux) unpack(aux, *(slot += BLOCK_THREADS));
    if (a.with_vaccine) unpack(vaccine, *(slot += BLOCK_THREADS));
    unpack(theta, *(slot += BLOCK_THREADS));
    unpack(m, *(slot += BLOCK_THREADS));
    unpack(v, *(slot += BLOCK_THREADS));
    unpack(target, *(slot += BLOCK_THREADS));
    const float own = verdict.scale[f.group], extra = verdict.extra, clip = verdict.clip;
    const float bias1 = bias.first[f.group], bias2 = bias.second[f.group];
    const float shrink = bias.shrink[f.group];
    const float rest1 = 1.0f - adam.beta1, rest2 = 1.0f - adam.beta2;
    const double factor = verdict.factor;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        g[j] = scaled(g[j], own);
        if (a.with_aux) g[j] += scaled(aux[j], extra);
        if (factor != 0.0) g[j] = (float)((double)g[j] - factor * (double)vaccine[j]);
        const float clipped = g[j] * clip;
        m[j] = adam.beta1 * m[j] + rest1 * clipped;
        v[j] = adam.beta2 * v[j] + (rest2 * clipped) * clipped;
        const float change = (m[j] * bias1) / (sqrtf(v[j] * bias2) + adam.eps);
        theta[j] = theta[j] - adam.rate * (change + shrink * theta[j]);
        target[j] = adam.copies ? theta[j] : target[j] + adam.tau * (theta[j] - target[j]);
    }
    if (a.with_aux || own != 1.0f || factor != 0.0) store(a.grad, g, f);
    store(a.m, m, f);
    store(a.v, v, f);
    store(a.theta, theta, f);
    if (adam.moves) store(a.target, target, f);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) update_step(
    float* theta, float* m, float* v, float* target, float* grad, const float* aux,
    const float* vaccine, const float* decay, const double* shares, double* partial,
    unsigned int* barrier, float* norms, float* scales, float* removed, float* clip, int* skip,
    const long long* counters, const double* schedule, const long long* diagnostics,
    const float* loss, float* td, const float* q_taken, double* record, double* history,
    double* ready, const float* q, const float* v_hi, const float* v_lo, long long end0,
    long long end1, long long end2, long long end3, long long end4, long long end5, long long end6,
    int tiles, int blocks, int held, int shared_bytes, int with_aux, int with_vaccine,
    int vaccinated, double budget_norm, double max_norm, float beta1, float beta2, float eps,
    long long every, int n, int ring, int readies, double ready_decay, double ready_low,
    double ready_high, int modulates, double modulate_k, double modulate_eps, double modulate_low,
    double modulate_high) {
    extern __shared__ float4 slots[];
    __shared__ Groups groups;
    __shared__ Bias bias;
    __shared__ Verdict verdict;
    __shared__ double share[COMPONENTS];
    __shared__ long long counted[COUNTERS];
    __shared__ double scheduled[SCHEDULES];
    __shared__ double totals[ADAM_GROUPS * TERM_SLOTS];
    // First the warps' sums of the tiles, then the warps' sums over the tiles.
    __shared__ double sums[WARPS_OF_BLOCK * MOST_HELD * TERM_SLOTS];
    const int t = threadIdx.x;
    const bool alone = gridDim.x == 1, publishes = blockIdx.x == 0, works = alone || !publishes;
    const int worker = alone ? 0 : (int)blockIdx.x - 1;
    const int stride = (alone ? 1 : (int)gridDim.x - 1) * TEAMS;
    const int first_tile = worker * TEAMS, mine = first_tile + t / TEAM;
    const int rounds = works && first_tile < tiles ? (tiles - 1 - first_tile) / stride + 1 : 0;
    const int waves = rounds ? (rounds - 1) / held + 1 : 0;
    const Arrays arrays = {grad, aux, vaccine, theta, m, v, target,
                           with_aux != 0, with_vaccine != 0, vaccinated};
    const bool aligned = arrays.aligned(), alike = !arrays.with_aux && !arrays.with_vaccine;
    const int terms = alike ? 1 : TERMS, width = (arrays.gradients() + 4) * BLOCK_THREADS;
    unsigned int arrived = 0;

    if (t == 0) {
        groups.place({end0, end1, end2, end3, end4, end5, end6});
        // It gives no gradients, so that nobody need wait for it.
        if (publishes && !alone) arrived = grid_arrive(barrier, gridDim.x, true);
    }
    __syncthreads();
#pragma unroll 1
    for (int wave = 0; wave < waves; ++wave) {
        const int from = wave * held, count = min(held, rounds - from);
#pragma unroll 1
        for (int u = 0; u < count; ++u)
            fetch_gradients(slots + u * width + t, arrays,
                            Four(groups, mine + (from + u) * stride, tiles, aligned));
        commit_copies();
        if (wave + 1 == waves)
#pragma unroll 1
            for (int u = 0; u < count; ++u)
                fetch_state(slots + u * width + t, arrays,
                            Four(groups, mine + (from + u) * stride, tiles, aligned));
        commit_copies();
        wait_copies<1>();
        __syncwarp();
#pragma unroll 1
        for (int u = 0; u < count; ++u) {
            double* its = sums + u * WARPS_OF_BLOCK * TERM_SLOTS;
            if (alike) add_terms<1>(its, slots + u * width + t, arrays);
            else add_terms<TERM_SLOTS>(its, slots + u * width + t, arrays);
        }
        __syncthreads();
        write_terms(partial, sums, count, terms, first_tile + from * stride, stride, tiles);
        __syncthreads();
    }
    if (works && t == 0) arrived = grid_arrive(barrier, gridDim.x, alone);

    // What follows the norm is fetched before it is waited for.
    if (t < COMPONENTS) share[t] = shares[t];
    if (t < COUNTERS) counted[t] = counters[t];
    if (t < SCHEDULES) scheduled[t] = schedule[t];
    if (t < ADAM_GROUPS) bias.shrink[t] = decay[t];
    Stats stats = {};
    if (publishes) {
        stats = block_stats(loss, td, q_taken, n);
        const Advantage advantage = {q,           v_hi,         v_lo,         modulate_k,
                                     modulate_eps, modulate_low, modulate_high};
        if (modulates)
            for (int i = t; i < n; i += BLOCK_THREADS) td[i] = modulated(advantage, td[i], i);
    }
    __syncthreads();
    if (t < ADAM_GROUPS) {
        bias.first[t] = 1.0f / (float)scheduled[S_BIAS + 2 * t];
        bias.second[t] = 1.0f / (float)scheduled[S_BIAS + 2 * t + 1];
    }
    Adam adam = {beta1, beta2, eps, (float)scheduled[S_LEARNING_RATE], (float)scheduled[S_TAU]};
    adam.moves = every <= 0 || counted[ADAM_TRUNK] % every == 0;
    adam.copies = every > 0 || adam.tau == 1.0f;

    if (t == 0) grid_wait(barrier, arrived);
    wait_copies<0>();
    __syncthreads();
    if (alike) add_tiles<1, 4>(totals, sums, partial, tiles, groups);
    else add_tiles<TERM_SLOTS, 1>(totals, sums, partial, tiles, groups);
    if (t < 32) verdict.reach(totals, share, arrays.with_aux, budget_norm, max_norm);
    __syncthreads();

    // From the last wave, which is at hand, to the first.
#pragma unroll 1
    for (int wave = verdict.skip ? -1 : waves - 1; wave >= 0; --wave) {
        const int from = wave * held, count = min(held, rounds - from);
        if (wave + 1 < waves) {
            __syncwarp();
#pragma unroll 1
            for (int u = 0; u < count; ++u) {
                const Four four(groups, mine + (from + u) * stride, tiles, aligned);
                fetch_gradients(slots + u * width + t, arrays, four);
                fetch_state(slots + u * width + t, arrays, four);
            }
            commit_copies();
            wait_copies<0>();
            __syncwarp();
        }
#pragma unroll 1
        for (int u = 0; u < count; ++u)
            update(slots + u * width + t, arrays,
                   Four(groups, mine + (from + u) * stride, tiles, aligned), adam, bias, verdict);
    }
    if (publishes) {
        if (t < COMPONENTS) norms[t] = verdict.norms[t], scales[t] = verdict.scales[t];
        if (t == 0) {
            clip[0] = verdict.norm, clip[1] = verdict.clip;
            skip[0] = verdict.skip;
            if (arrays.with_vaccine) removed[0] = (float)verdict.factor;
            publish_record(stats, &verdict.norm, counted, scheduled, diagnostics, &verdict.skip,
                           record, history, ring);
            if (readies && !verdict.skip && n > 0)
                take_loss(stats.loss, ready, ready_decay, ready_low, ready_high);
        }
    }
}
