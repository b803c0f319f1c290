// Quantile Huber loss and output gradient, a warp a row (iqn_loss.py).
//
// A lane has one online quantile and meets the target quantiles one after the other: 32 of them
// stand in the lanes' registers and are handed round.
#include "learner/heads.cuh"
#include "learner/warp_sum.cuh"

extern "C" __global__ void __launch_bounds__(64)
iqn_loss(const float* __restrict__ head_tm1, const float* __restrict__ tau,
         const float* __restrict__ head_target, const float* __restrict__ head_select,
         const int* __restrict__ action, const float* __restrict__ reward,
         const float* __restrict__ discount, const float* __restrict__ weight,
         float* __restrict__ td, float* __restrict__ loss, float* __restrict__ q_taken,
         float* __restrict__ grad_head, int n, int quantiles, int target_quantiles, int actions,
         int dueling, float kappa) {
    const int stride = actions + (dueling ? 1 : 0);
    const int lane = threadIdx.x & 31, per_block = blockDim.x >> 5;
    const float samples = (float)target_quantiles, share = 1.0f / (float)actions;
    for (long long row = blockIdx.x * (long long)per_block + (threadIdx.x >> 5); row < n;
         row += (long long)gridDim.x * per_block) {
        int a = action[row];
        const bool valid = a >= 0 && a < actions;
        a = a < 0 ? 0 : (a >= actions ? actions - 1 : a);
        const float r = reward[row], gamma = discount[row], w = weight[row];
        const bool bootstraps = gamma != 0.0f;
        const int best = bootstraps ? greedy_action(head_select + row * stride, actions) : 0;
        const float* successor = head_target + row * target_quantiles * stride;
        auto target_of = [&](int j) {
            if (j >= target_quantiles) return 0.0f;
            return r + (bootstraps ? gamma * action_value(successor + (long long)j * stride, best,
                                                          actions, dueling)
                                   : 0.0f);
        };

        float online_sum = 0.0f, target_sum = 0.0f, cost_sum = 0.0f;
        for (int first = 0; first < quantiles; first += 32) {
            const int i = first + lane;
            const bool mine = i < quantiles;
            const long long at = row * quantiles + i;
            float theta = 0.0f, level = 0.0f;
            if (mine) {
                level = tau[at];
                theta = valid ? action_value(head_tm1 + at * stride, a, actions, dueling)
                              : __int_as_float(0x7fc00000);
            }
            float cost = 0.0f, slope = 0.0f;
            for (int from = 0; from < target_quantiles; from += 32) {
                const float own = target_of(from + lane);
                if (first == 0) target_sum += own;
                const int count = min(32, target_quantiles - from);
#pragma unroll 4
                for (int j = 0; j < count; ++j) {
                    const float delta = __shfl_sync(ALL_LANES, own, j) - theta;
                    const float side = delta < 0.0f ? 1.0f - level : level;
                    const float size = fabsf(delta);
                    const float huber =
                        size <= kappa ? (0.5f * delta) * delta : kappa * (size - 0.5f * kappa);
                    cost += side * huber;
                    slope += side * (delta > kappa ? kappa : (delta < -kappa ? -kappa : delta));
                }
            }
            if (mine) {
                online_sum += theta;
                cost_sum += cost / kappa;
            }
            const float g = -(w * (slope / kappa)) / (samples * (float)n);
            // The warp writes its quantiles' rows of the gradient side by side.
            float* out = grad_head + (row * quantiles + first) * stride;
            const int size = min(32, quantiles - first) * stride;
            for (int from = 0; from < size; from += 32) {
                const int k = from + lane, owner = k / stride, column = k - owner * stride;
                const float its = __shfl_sync(ALL_LANES, g, owner & 31);
                if (k < size) {
                    const float one = column == a ? 1.0f : 0.0f;
                    out[k] = !dueling ? (column == a ? its : 0.0f)
                                      : (column == actions ? its : its * (one - share));
                }
            }
        }
        const float q = warp_sum(online_sum) / (float)quantiles;
        const float target = warp_sum(target_sum) / samples;
        const float cost = warp_sum(cost_sum) / samples;
        if (lane == 0) {
            td[row] = target - q;
            loss[row] = w * cost;
            q_taken[row] = q;
        }
    }
}
