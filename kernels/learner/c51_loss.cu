// Cross entropy against the projected target distribution, a warp a row (c51_loss.py).
#include "learner/categorical.cuh"
#include "learner/heads.cuh"

extern "C" __global__ void __launch_bounds__(64)
c51_loss(const float* __restrict__ head_tm1, const float* __restrict__ head_target,
         const float* __restrict__ head_select, const int* __restrict__ action,
         const float* __restrict__ reward, const float* __restrict__ discount,
         const float* __restrict__ weight, float* __restrict__ td, float* __restrict__ loss,
         float* __restrict__ q_taken, float* __restrict__ grad_head, int n, int actions, int dueling,
         int atoms, double v_min, double v_max) {
    __shared__ double target_mass[2][MAX_ATOMS], target_place[2][MAX_ATOMS];
    __shared__ double online_x[2][MAX_ATOMS], online_e[2][MAX_ATOMS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, per_block = blockDim.x >> 5;
    double *mass = target_mass[warp], *place = target_place[warp];
    double *x = online_x[warp], *e = online_e[warp];
    const double distance = atom_distance(atoms, v_min, v_max), share = 1.0 / (double)actions;
    const long long width = (long long)(actions + (dueling ? 1 : 0)) * atoms;
    for (long long row = blockIdx.x * (long long)per_block + warp; row < n;
         row += (long long)gridDim.x * per_block) {
        int a = action[row];
        const bool valid = a >= 0 && a < actions;
        a = a < 0 ? 0 : (a >= actions ? actions - 1 : a);
        const double w = (double)weight[row], gamma = (double)discount[row];
        const double start = (((double)reward[row] + gamma * v_min) - v_min) / distance;
        const bool bootstraps = gamma != 0.0;

        __syncwarp();  // everybody has read the row before
        if (bootstraps) {
            const int best = greedy_action(head_select + row * actions, actions);
            const float* from = head_target + row * width;
            for (int k = lane; k < atoms; k += 32) {
                mass[k] = atom_logit(from, best, k, actions, atoms, dueling);
                place[k] = clamp_place(start + gamma * (double)k, atoms);
            }
            const double total = softmax_parts(mass, mass, atoms);
            for (int k = lane; k < atoms; k += 32) mass[k] = mass[k] / total;
        }
        const float* from = head_tm1 + row * width;
        for (int k = lane; k < atoms; k += 32) {
            x[k] = valid ? atom_logit(from, a, k, actions, atoms, dueling)
                         : __longlong_as_double(0x7ff8000000000000LL);
        }
        const double total = softmax_parts(x, e, atoms);
        const double log_total = det_log(total);
        __syncwarp();

        double likelihood = 0.0, entropy = 0.0, value = 0.0;
        for (int i = lane; i < atoms; i += 32) {
            double m = 0.0;
            if (bootstraps) {
                for (int k = 0; k < atoms; ++k) m += mass[k] * share_of(place[k], i);
            } else {
                m = share_of(clamp_place(start, atoms), i);
            }
            likelihood += weighted_log(m, x[i] - log_total);
            entropy += weighted_log(m, det_log(m));
            value += e[i] * (v_min + (double)i * distance);
            const double g = (w * (e[i] / total - m)) / (double)n;
            float* out = grad_head + row * width + i;
            for (int j = 0; j < actions; ++j) {
                const double one = j == a ? 1.0 : 0.0;
                out[(long long)j * atoms] =
                    dueling ? (float)(g * (one - share)) : (j == a ? (float)g : 0.0f);
            }
            if (dueling) out[(long long)actions * atoms] = (float)g;
        }
        likelihood = warp_sum(likelihood);
        const double divergence = warp_sum(entropy) - likelihood;
        value = warp_sum(value) / total;
        if (lane == 0) {
            td[row] = (float)(divergence < 0.0 ? 0.0 : divergence);
            loss[row] = (float)(w * -likelihood);
            q_taken[row] = (float)value;
        }
    }
}
