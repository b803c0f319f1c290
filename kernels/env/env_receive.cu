// Take in what the host's environments did, a warp a lane; see env_receive.py.
#include "common/layout.cuh"

extern "C" __global__ void env_receive(
    const float* __restrict__ host_obs, const float* __restrict__ host_final,
    const float* __restrict__ host_reward, const unsigned char* __restrict__ host_flags,
    const long long* __restrict__ host_episode, float* __restrict__ obs,
    float* __restrict__ obs_tm1, float* __restrict__ obs_t, float* __restrict__ reward,
    unsigned char* __restrict__ flags, long long* __restrict__ episode, int lanes, int padded,
    int reset) {
    const int thread = threadIdx.x & 31;
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    for (long long lane = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5);
         lane < lanes; lane += warps) {
        const long long row = lane * padded;
        if (reset) {
            for (int column = thread; column < padded; column += 32) {
                obs[row + column] = host_obs[row + column];
            }
            continue;
        }
        // Each read of the host's memory crosses the bus: the final row only where there is one.
        const unsigned char seen = host_flags[lane];
        const bool ended = seen & (F_TERMINATED | F_TRUNCATED);
        for (int column = thread; column < padded; column += 32) {
            const float now = host_obs[row + column];
            obs_tm1[row + column] = obs[row + column];
            obs_t[row + column] = ended ? host_final[row + column] : now;
            obs[row + column] = now;
        }
        if (thread == 0) {
            reward[lane] = host_reward[lane];
            flags[lane] = seen;
            episode[lane] = host_episode[lane];
        }
    }
}
