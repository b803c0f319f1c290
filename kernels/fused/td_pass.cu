// From a drawn batch to TD errors and the gradients of the activations, a cluster a few rows at a time
// (td_pass.py).
//
// A cluster's blocks share the columns of both hidden layers: a block keeps its columns of the online
// and of the target network's matrices in shared memory for all of its rows. The blocks hand each
// other the first layer's outputs, their parts of the head's values, and on the way back their parts
// of the first layer's gradient; what they add up, they add in the order of the blocks.
//
// In a block a lane has a column, the eight warps share the sum over k, and their parts are added in
// the order 0, 1, ..., 7. A ninth warp scales the importance weights beside them, and in the grid's
// first block advances the counters, and notes what was counted of the priorities.
//
// A block lives a few microseconds and runs most of its code once, so that what it waits for first is
// its instructions: loops stay rolled, and there is one path for every width.
#include "common/cluster.cuh"
#include "fused/programmatic.cuh"
#include "learner/counters.cuh"
#include "learner/gemm.cuh"
#include "learner/heads.cuh"
#include "replay/weights.cuh"

#define WORKERS 256
#define WORKER_WARPS 8
#define PAD 4  // floats behind a panel's row: neighbouring rows start in different banks

__device__ inline void workers_barrier() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// Of the workers of the whole cluster.
__device__ inline void everyone_barrier() {
    if (cluster_size() > 1) cluster_barrier();
    else workers_barrier();
}

// One hidden layer in this block: its inputs, and which of its outputs are this block's. Widths and
// slices are multiples of four.
struct Layer {
    int k, width, slice, first, count, pitch;
    float *online, *target, *bias, *target_bias;  // panels [k][pitch], [slice]
};

// `count` columns, a multiple of four, of each of `rows` rows; sixteen bytes a copy. A block's columns
// are fewer than 4 WORKERS: no more sums of its warps fit its shared memory.
__device__ inline void load_panel(float* panel, int pitch, const float* matrix, int width, int rows,
                                  int count) {
    const int fours = count >> 2;
    if (fours == 0) return;
    const int at_once = WORKERS / fours, r0 = threadIdx.x / fours, c = 4 * (threadIdx.x % fours);
    if (r0 >= at_once) return;
    float* to = panel + r0 * pitch + c;
    const float* from = matrix + r0 * width + c;
#pragma unroll 1
    for (int r = r0; r < rows; r += at_once, to += at_once * pitch, from += at_once * width)
        copy_async<16>(to, from, true);
}

__device__ inline float4 added(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// ReLU; a NaN is not less than zero: it stays.
__device__ inline float4 above_zero(float4 v) {
    return make_float4(v.x < 0.0f ? 0.0f : v.x, v.y < 0.0f ? 0.0f : v.y, v.z < 0.0f ? 0.0f : v.z,
                       v.w < 0.0f ? 0.0f : v.w);
}

// What the kernel reads and writes; see td_pass.py.
struct Args {
    const float *state, *next_state, *theta, *target;
    const int* action;
    const float *ret, *discount;
    float *weights, *td, *loss, *q_taken, *hidden0, *hidden1, *grad_head, *grad1, *grad0;
    int n, inputs, width0, width1, actions, dueling, double_q, mse;
    float delta;
    int weight0, bias0, weight1, bias1, weight2, bias2;
};

// acc[r][q] += sum over this warp's k of x[r][k] panel[k][q], four columns and R rows a lane.
template <int R>
__device__ __forceinline__ void multiply(float4 (&acc)[R], const float* x, int x_pitch,
                                         const float* panel, int pitch, int from, int to) {
#pragma unroll 2
    for (int k = from; k < to; k += 4) {
        float4 w[4];
#pragma unroll
        for (int q = 0; q < 4; ++q)
            w[q] = *reinterpret_cast<const float4*>(panel + (k + q) * pitch);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const float4 a = *reinterpret_cast<const float4*>(x + r * x_pitch + k);
            const float v[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                acc[r].x = __fmaf_rn(v[q], w[q].x, acc[r].x);
                acc[r].y = __fmaf_rn(v[q], w[q].y, acc[r].y);
                acc[r].z = __fmaf_rn(v[q], w[q].z, acc[r].z);
                acc[r].w = __fmaf_rn(v[q], w[q].w, acc[r].w);
            }
        }
    }
}

template <int R>
__device__ __forceinline__ void run(float* shared, const float* row_weights, const Args& a,
                                    int tiles) {
    const int blocks = cluster_size(), rank = cluster_rank();
    const int stride = a.actions + (a.dueling ? 1 : 0);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;

    // Shared memory in floats, as td_pass.py: shared_bytes counts it.
    float* at = shared;
    auto take = [&](int floats) { float* p = at; at += (floats + 3) & ~3; return p; };
    Layer l0, l1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        Layer& l = i ? l1 : l0;
        l.k = i ? a.width0 : a.inputs, l.width = i ? a.width1 : a.width0;
        l.slice = ((l.width + blocks - 1) / blocks + 3) & ~3;
        l.first = min(rank * l.slice, l.width), l.count = min(l.slice, l.width - l.first);
        l.pitch = l.slice + PAD;
        l.online = take(l.k * l.pitch), l.target = take(l.k * l.pitch);
        l.bias = take(l.slice), l.target_bias = take(l.slice);
    }
    float *head = take(l1.slice * stride), *head_target = take(l1.slice * stride);
    float *bias2 = take(stride), *target_bias2 = take(stride);
    const int x_pitch = a.inputs + PAD, a0_pitch = a.width0 + PAD;
    float *x = take(3 * R * x_pitch), *a0 = take(3 * R * a0_pitch), *a1 = take(3 * R * l1.slice);
    float* parts = take(WORKER_WARPS * 3 * R * max(l0.slice, l1.slice));
    float* heads = take(blocks * 3 * R * stride);  // every block's parts of the head's values
    float *values = take(3 * R * stride), *dhead = take(R * stride), *d1 = take(R * l1.slice);
    float* d0 = take(blocks * R * l0.slice);  // every block's parts of this block's gradient

    // Parameters do not wait for the draw, and what is needed first is asked for first.
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        Layer l = l0;  // a copy: a reference to either would put both into memory
        if (i >= 2) l = l1;
        const float* from = i & 1 ? a.target : a.theta;
        load_panel(i & 1 ? l.target : l.online, l.pitch,
                   from + (i < 2 ? a.weight0 : a.weight1) + l.first, l.width, l.k, l.count);
        load_panel(i & 1 ? l.target_bias : l.bias, 0, from + (i < 2 ? a.bias0 : a.bias1) + l.first,
                   0, 1, l.count);
        if (i >= 2) {
#pragma unroll 1
            for (int c = threadIdx.x; c < l1.count * stride; c += WORKERS)
                copy_async<4>((i & 1 ? head_target : head) + c,
                              from + a.weight2 + l1.first * stride + c, true);
#pragma unroll 1
            for (int c = threadIdx.x; c < stride; c += WORKERS)
                copy_async<4>((i & 1 ? target_bias2 : bias2) + c, from + a.bias2 + c, true);
        }
        if (i & 1) commit_copies();
    }
    wait_for_grid();

    const int clusters = gridDim.x / blocks;
    bool first = true;
#pragma unroll 1
    for (int tile = blockIdx.x / blocks; tile < tiles; tile += clusters, first = false) {
        const int row0 = tile * R;
        int action = 0;
        float ret = 0.0f, discount = 0.0f;
        if (threadIdx.x < R && row0 + (int)threadIdx.x < a.n) {
            action = a.action[row0 + threadIdx.x];
            ret = a.ret[row0 + threadIdx.x];
            discount = a.discount[row0 + threadIdx.x];
        }
        // Four floats a thread: the rows of s_tm1, then those of s_t, which two passes read.
        const int fours = a.inputs >> 2;
#pragma unroll 1
        for (int u = threadIdx.x; u < 2 * R * fours; u += WORKERS) {
            const int v = u / fours, c = 4 * (u - v * fours), row = row0 + (v < R ? v : v - R);
            const float* from = (v < R ? a.state : a.next_state) + (long long)row * a.inputs + c;
            float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (row < a.n) value = *reinterpret_cast<const float4*>(from);
            *reinterpret_cast<float4*>(x + v * x_pitch + c) = value;
            if (v >= R) *reinterpret_cast<float4*>(x + (v + R) * x_pitch + c) = value;
        }
        if (first) wait_copies<1>();
        // Before anybody writes into a block's memory it has started, and has read what the last
        // rows left there.
        everyone_barrier();

#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
            Layer l = l0;
            if (i) l = l1;
            const float* in = i ? a0 : x;
            const int in_pitch = i ? a0_pitch : x_pitch, fours = l.count >> 2;
            const int share = ((l.k >> 2) + WORKER_WARPS - 1) / WORKER_WARPS * 4;
            const int from = min(warp * share, l.k), to = min(from + share, l.k);
            // Eight lanes a pass: s_tm1 and s_t through the online network, s_t through the target.
            const int pass = lane >> 3;
            if (pass < 3) {
#pragma unroll 1
                for (int c = 4 * (lane & 7); c < l.count; c += 32) {
                    float4 acc[R] = {};
                    multiply<R>(acc, in + pass * R * in_pitch, in_pitch,
                                (pass == 2 ? l.target : l.online) + c, l.pitch, from, to);
                    float* mine = parts + (warp * 3 + pass) * R * l.slice + c;
#pragma unroll
                    for (int r = 0; r < R; ++r)
                        *reinterpret_cast<float4*>(mine + r * l.slice) = acc[r];
                }
            }
            workers_barrier();
#pragma unroll 1
            for (int u = threadIdx.x; u < 3 * R * fours; u += WORKERS) {
                const int r = u / fours, c = 4 * (u - r * fours);
                const float* part = parts + r * l.slice + c;
                float4 sum = *reinterpret_cast<const float4*>(part);
#pragma unroll
                for (int w = 1; w < WORKER_WARPS; ++w)
                    sum = added(sum, *reinterpret_cast<const float4*>(part + w * 3 * R * l.slice));
                sum = added(sum, *reinterpret_cast<const float4*>(
                                     (r < 2 * R ? l.bias : l.target_bias) + c));
                sum = above_zero(sum);
                float* place = i ? a1 + r * l.slice + c : a0 + r * a0_pitch + l.first + c;
                *reinterpret_cast<float4*>(place) = sum;
                // To every other block in turn, each block starting with another.
#pragma unroll 1
                for (int b = i ? blocks : 1; b < blocks; ++b)
                    cluster_store(cluster_address(place, (rank + b) % blocks), sum);
            }
            if (first) wait_copies<0>();
            if (i) workers_barrier();
            else everyone_barrier();
        }

        // This block's part of the head's values, four threads a number, to every block.
#pragma unroll 1
        for (int u = threadIdx.x; u < 12 * R * stride; u += WORKERS) {
            const int v = u >> 2, r = v / stride, j = v - r * stride;
            const float* matrix = (r < 2 * R ? head : head_target) + j;
            float sum = 0.0f;
#pragma unroll 4
            for (int c = u & 3; c < l1.count; c += 4)
                sum = __fmaf_rn(a1[r * l1.slice + c], matrix[c * stride], sum);
            const unsigned int four = 0xfu << (threadIdx.x & 28);
            sum += __shfl_xor_sync(four, sum, 1);
            sum += __shfl_xor_sync(four, sum, 2);
            // Each of the four hands it to some of the blocks.
            float* place = heads + rank * 3 * R * stride + v;
#pragma unroll 1
            for (int b = u & 3; b < blocks; b += 4) {
                if (b == rank) *place = sum;
                else cluster_store(cluster_address(place, b), sum);
            }
        }
        everyone_barrier();
#pragma unroll 1
        for (int v = threadIdx.x; v < 3 * R * stride; v += WORKERS) {
            float sum = heads[v];
#pragma unroll 4
            for (int b = 1; b < blocks; ++b) sum += heads[b * 3 * R * stride + v];
            values[v] = sum + (v < 2 * R * stride ? bias2 : target_bias2)[v % stride];
        }
        if (first) asm volatile("bar.sync 2, 288;" ::: "memory");  // the weights are scaled
        else workers_barrier();

        // TD error, loss and the head's gradient, a thread a row (dqn_loss.py).
        if (threadIdx.x < R) {
            const int r = threadIdx.x, row = row0 + r;
            float* gradient = dhead + r * stride;
            const float *online = values + r * stride, *select = online + R * stride;
            const float* target = online + 2 * R * stride;
            const float weight = row >= a.n ? 0.0f : first ? row_weights[r] : a.weights[row];
            const bool valid = action >= 0 && action < a.actions;
            const int act = action < 0 ? 0 : min(action, a.actions - 1);
            if (discount != 0.0f) {
                const int best = greedy_action(a.double_q ? select : target, a.actions);
                ret += discount * action_value(target, best, a.actions, a.dueling);
            }
            const float q = valid ? action_value(online, act, a.actions, a.dueling)
                                  : __int_as_float(0x7fc00000);
            const Cost cost = td_cost(ret - q, a.mse, a.delta);
            const float g = row < a.n ? -(weight * cost.slope) / (float)a.n : 0.0f;
            const float share = a.dueling ? 1.0f / (float)a.actions : 0.0f;
            const bool writes = rank == 0 && row < a.n;
#pragma unroll 1
            for (int j = 0; j < stride; ++j) {
                float slope = j == act ? 1.0f - share : 0.0f - share;
                if (!a.dueling) slope = j == act ? 1.0f : 0.0f;
                if (a.dueling && j == a.actions) slope = 1.0f;
                // A plain head's other columns are zeros, whatever g is.
                const float d = slope == 0.0f ? 0.0f : g * slope;
                gradient[j] = d;
                if (writes) a.grad_head[(long long)row * stride + j] = d;
            }
            if (writes) {
                a.td[row] = ret - q;
                a.loss[row] = weight * cost.cost;
                a.q_taken[row] = q;
            }
        }
        workers_barrier();

        // The gradient of this block's outputs of the second layer, a warp a row.
        if (warp < R) {
            const int row = row0 + warp;
#pragma unroll 1
            for (int c = lane; c < l1.count; c += 32) {
                float sum = 0.0f;
#pragma unroll 1
                for (int j = 0; j < stride; ++j)
                    sum = __fmaf_rn(dhead[warp * stride + j], head[c * stride + j], sum);
                const float out = a1[warp * l1.slice + c];
                if (!(out > 0.0f)) sum = 0.0f;
                d1[warp * l1.slice + c] = sum;
                if (row < a.n) {
                    a.hidden1[(long long)row * a.width1 + l1.first + c] = out;
                    a.grad1[(long long)row * a.width1 + l1.first + c] = sum;
                }
            }
        }
        workers_barrier();

        // This block's part of the gradient of the first layer's outputs, each to the block whose
        // output it is; a thread a column.
#pragma unroll 1
        for (int k = threadIdx.x; k < a.width0; k += WORKERS) {
            float acc[R] = {};
            const float* line = l1.online + k * l1.pitch;
#pragma unroll 2
            for (int c = 0; c < l1.count; c += 4) {
                const float4 w = *reinterpret_cast<const float4*>(line + c);
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    const float4 d = *reinterpret_cast<const float4*>(d1 + r * l1.slice + c);
                    acc[r] = __fmaf_rn(d.x, w.x, acc[r]);
                    acc[r] = __fmaf_rn(d.y, w.y, acc[r]);
                    acc[r] = __fmaf_rn(d.z, w.z, acc[r]);
                    acc[r] = __fmaf_rn(d.w, w.w, acc[r]);
                }
            }
            const int owner = k / l0.slice;
            float* place = d0 + rank * R * l0.slice + k - owner * l0.slice;
#pragma unroll
            for (int r = 0; r < R; ++r) {
                if (owner == rank) place[r * l0.slice] = acc[r];
                else cluster_store(cluster_address(place + r * l0.slice, owner), acc[r]);
            }
        }
        everyone_barrier();
        if (warp < R && row0 + warp < a.n) {
#pragma unroll 1
            for (int k = lane; k < l0.count; k += 32) {
                float sum = d0[warp * l0.slice + k];
#pragma unroll 4
                for (int b = 1; b < blocks; ++b) sum += d0[(b * R + warp) * l0.slice + k];
                const float out = a0[warp * a0_pitch + l0.first + k];
                const long long place = (long long)(row0 + warp) * a.width0 + l0.first + k;
                a.hidden0[place] = out;
                a.grad0[place] = out > 0.0f ? sum : 0.0f;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(288, 1) td_pass(
    const float* state, const float* next_state, const float* theta, const float* target,
    const int* action, const float* ret, const float* discount, const double* raw,
    long long* counters, double* schedule, const double* params, const int* skip,
    const long long* diagnostics, long long* seen, float* weights,
    float* td, float* loss, float* q_taken, float* hidden0, float* hidden1, float* grad_head,
    float* grad1, float* grad0, int n, int inputs, int width0, int width1, int actions,
    int dueling, int double_q, int mse, float delta, int weight0, int bias0, int weight1, int bias1,
    int weight2, int bias2, int rows, int tiles, int cluster, int shared_bytes) {
    extern __shared__ float4 dynamic[];
    __shared__ float row_weights[8];  // of the block's first rows
    start_next_grid();
    if (threadIdx.x >= WORKERS) {
        const int lane = threadIdx.x & 31;
        wait_for_grid();
        // Weights are finite and not below zero: their bits are in their order.
        long long largest = 0;
#pragma unroll 1
        for (int i = lane; i < n; i += 32) largest = max(largest, __double_as_longlong(raw[i]));
#pragma unroll 1
        for (int width = 16; width; width >>= 1)
            largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, width));
        const double most = __longlong_as_double(largest);
        // Every block scales the weights of its own rows; those of a cluster write the same numbers.
        const int blocks = cluster_size(), clusters = gridDim.x / blocks;
#pragma unroll 1
        for (int tile = blockIdx.x / blocks; tile < tiles; tile += clusters) {
            const int row = tile * rows + lane;
            if (lane < rows && row < n) {
                const float weight = scaled_weight(raw[row], most);
                weights[row] = weight;
                if (tile == (int)blockIdx.x / blocks) row_weights[lane] = weight;
            }
        }
        __threadfence_block();
        if ((int)(blockIdx.x / blocks) < tiles) asm volatile("bar.arrive 2, 288;" ::: "memory");
        if (blockIdx.x == 0) {
            if (lane < DIAGNOSTICS) seen[lane] = diagnostics[lane];
            advance_learning(counters, schedule, params, skip);
        }
        return;
    }
    const Args a = {state, next_state, theta, target, action, ret, discount, weights, td, loss,
                    q_taken, hidden0, hidden1, grad_head, grad1, grad0, n, inputs, width0, width1,
                    actions, dueling, double_q, mse, delta, weight0, bias0, weight1, bias1, weight2,
                    bias2};
    float* shared = reinterpret_cast<float*>(dynamic);
    if (rows == 3) run<3>(shared, row_weights, a, tiles);
    else if (rows == 5) run<5>(shared, row_weights, a, tiles);
    else run<8>(shared, row_weights, a, tiles);
}
