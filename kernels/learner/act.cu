// Epsilon-greedy actions, a lane of the environment a thread (act.py).
#include "common/layout.cuh"
#include "common/philox.cuh"
#include "learner/heads.cuh"

extern "C" __global__ void act(const float* __restrict__ head, int* __restrict__ action,
                               const long long* __restrict__ counters,
                               const double* __restrict__ schedule, int n, int actions, int stride,
                               unsigned long long seed, int greedy) {
    unsigned int step = (unsigned int)counters[COLLECT];
    double epsilon = schedule[S_EPSILON];
    for (long long lane = blockIdx.x * (long long)blockDim.x + threadIdx.x; lane < n;
         lane += (long long)gridDim.x * blockDim.x) {
        Uniform2 draw = philox_uniform(seed, (unsigned int)lane, step, T_ACT);
        int chosen;
        if (!greedy && draw.u[0] < epsilon) {
            chosen = (int)(draw.u[1] * (double)actions);
            chosen = chosen < actions ? chosen : actions - 1;
        } else {
            chosen = greedy_action(head + lane * stride, actions);
        }
        action[lane] = chosen;
    }
}
