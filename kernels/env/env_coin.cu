// A coin, a lane a thread; see env_coin.py.
#include "env/lanes.cuh"

extern "C" __global__ void env_coin(long long* __restrict__ lane_episode, float* __restrict__ obs,
                                    float* __restrict__ obs_tm1, float* __restrict__ obs_t,
                                    float* __restrict__ reward, unsigned char* __restrict__ flags,
                                    long long* __restrict__ episode, int lanes, int padded,
                                    unsigned long long seed, int reset) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long lane = blockIdx.x * (long long)blockDim.x + threadIdx.x; lane < lanes;
         lane += stride) {
        const long long row = lane * padded, begun = lane_episode[lane];
        for (int c = 0; c < padded; c += 1) {
            const float seen = c == 0 ? 1.0f : 0.0f;
            obs[row + c] = seen;
            if (!reset) {
                obs_tm1[row + c] = seen;
                obs_t[row + c] = seen;
            }
        }
        if (!reset) {
            const Philox drawn =
                philox4x32((unsigned int)lane, (unsigned int)(begun - 1), T_TOSS, 0u,
                           (unsigned int)seed, (unsigned int)(seed >> 32));
            reward[lane] = (float)(drawn.x[0] >> 31);
            flags[lane] = (unsigned char)F_TERMINATED;
            episode[lane] = lane + (long long)lanes * (begun - 1);
        }
        lane_episode[lane] = begun + 1;
    }
}
