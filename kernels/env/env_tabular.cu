// A deterministic tabular environment, a lane a warp (env_tabular.py).
#include "env/lanes.cuh"

extern "C" __global__ void env_tabular(
    const int* __restrict__ table_next, const float* __restrict__ table_reward,
    const unsigned char* __restrict__ table_flags, const int* __restrict__ action,
    int* __restrict__ lane_state, int* __restrict__ lane_steps, long long* __restrict__ lane_episode,
    float* __restrict__ obs, float* __restrict__ obs_tm1, float* __restrict__ obs_t,
    float* __restrict__ reward, unsigned char* __restrict__ flags, long long* __restrict__ episode,
    int lanes, int states, int actions, int padded, int start, int max_steps, unsigned long long seed,
    int reset) {
    int thread = threadIdx.x & 31;
    long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    for (long long lane = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5);
         lane < lanes; lane += warps) {
        long long state = lane_state[lane], begun = lane_episode[lane];
        int steps = lane_steps[lane];
        long long row = lane * padded;
        bool restart = reset != 0;
        if (!restart) {
            int asked = action[lane];
            long long a = clamp_index(asked, actions);
            long long from = clamp_index(state, states);
            long long cell = from * actions + a;
            int listed = table_next[cell];
            long long next = clamp_index(listed, states);
            unsigned int flag = a != asked || from != state || next != listed ? F_INVALID : 0;
            steps += 1;
            if (table_flags[cell] & F_TERMINATED) {
                flag |= F_TERMINATED;
            } else if (max_steps > 0 && steps >= max_steps) {
                flag |= F_TRUNCATED;
            }
            for (int c = thread; c < padded; c += 32) {
                obs_tm1[row + c] = obs[row + c];
                obs_t[row + c] = c == next ? 1.0f : 0.0f;
            }
            if (thread == 0) {
                reward[lane] = table_reward[cell];
                flags[lane] = (unsigned char)flag;
                episode[lane] = lane + (long long)lanes * (begun - 1);
            }
            state = next;
            restart = (flag & (F_TERMINATED | F_TRUNCATED)) != 0;
        }
        if (restart) {
            state = start < 0 ? reset_draw(seed, lane, begun, states) : clamp_index(start, states);
            steps = 0;
            begun += 1;
        }
        for (int c = thread; c < padded; c += 32) obs[row + c] = c == state ? 1.0f : 0.0f;
        __syncwarp();  // the whole warp has read the lane's state
        if (thread == 0) {
            lane_state[lane] = (int)state;
            lane_steps[lane] = steps;
            lane_episode[lane] = begun;
        }
    }
}
