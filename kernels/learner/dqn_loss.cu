// TD error, loss and output gradient of one transition a thread (dqn_loss.py).
#include "learner/heads.cuh"

extern "C" __global__ void dqn_loss(const float* __restrict__ head_tm1,
                                    const float* __restrict__ head_select,
                                    const float* __restrict__ head_target,
                                    const int* __restrict__ action, const float* __restrict__ reward,
                                    const float* __restrict__ discount,
                                    const float* __restrict__ weight, float* __restrict__ td,
                                    float* __restrict__ loss, float* __restrict__ q_taken,
                                    float* __restrict__ grad_head, int n, int actions, int dueling,
                                    int double_q, int mse, float delta) {
    int stride = actions + (dueling ? 1 : 0);
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        long long row = i * stride;
        int a = action[i];
        bool valid = a >= 0 && a < actions;
        a = a < 0 ? 0 : (a >= actions ? actions - 1 : a);

        float target = reward[i];
        if (discount[i] != 0.0f) {
            int best = greedy_action((double_q ? head_select : head_target) + row, actions);
            target += discount[i] * action_value(head_target + row, best, actions, dueling);
        }
        float q = valid ? action_value(head_tm1 + row, a, actions, dueling)
                        : __int_as_float(0x7fc00000);
        float error = target - q;
        const Cost cost = td_cost(error, mse, delta);
        td[i] = error;
        loss[i] = weight[i] * cost.cost;
        q_taken[i] = q;
        float g = -(weight[i] * cost.slope) / (float)n;
        if (dueling) {
            float share = 1.0f / (float)actions;
            for (int j = 0; j < actions; ++j) {
                grad_head[row + j] = g * ((j == a ? 1.0f : 0.0f) - share);
            }
            grad_head[row + actions] = g;
        } else {
            grad_head[row + a] = g;
        }
    }
}
