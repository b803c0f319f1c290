// Bit flipping, a lane a warp; see env_bit_flip.py.
#include "env/lanes.cuh"

// Column c of the observation that an episode begins with.
__device__ inline float first_bit(const Philox& drawn, int c, int bits) {
    if (c >= 2 * bits) return 0.0f;
    int bit = c < bits ? c : c - bits;
    unsigned int word = drawn.x[(c < bits ? 0 : 2) + (bit >> 5)];
    return (float)((word >> (bit & 31)) & 1u);
}

extern "C" __global__ void env_bit_flip(const int* __restrict__ action, int* __restrict__ lane_steps,
                                        long long* __restrict__ lane_episode,
                                        float* __restrict__ obs, float* __restrict__ obs_tm1,
                                        float* __restrict__ obs_t, float* __restrict__ reward,
                                        unsigned char* __restrict__ flags,
                                        long long* __restrict__ episode, int lanes, int bits,
                                        int padded, int max_steps, unsigned long long seed,
                                        int reset) {
    const int thread = threadIdx.x & 31;
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    for (long long lane = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5);
         lane < lanes; lane += warps) {
        const long long row = lane * padded, begun = lane_episode[lane];
        int steps = lane_steps[lane] + 1;
        long long flipped = -1;
        bool restart = reset != 0;
        if (!restart) {
            const int asked = action[lane];
            flipped = clamp_index(asked, bits);
            bool equal = true;
            for (int c = thread; c < bits; c += 32) {
                const bool bit = (obs[row + c] != 0.0f) != (c == flipped);
                equal = equal && bit == (obs[row + bits + c] != 0.0f);
            }
            const bool reached = __all_sync(0xffffffffu, equal);
            const bool late = !reached && max_steps > 0 && steps >= max_steps;
            restart = reached || late;
            if (thread == 0) {
                reward[lane] = reached ? 0.0f : -1.0f;
                flags[lane] = (unsigned char)((reached ? F_TERMINATED : 0) |
                                              (late ? F_TRUNCATED : 0) |
                                              (flipped != asked ? F_INVALID : 0));
                episode[lane] = lane + (long long)lanes * (begun - 1);
            }
        }
        const Philox drawn = philox4x32((unsigned int)lane, (unsigned int)begun, T_RESET, 0u,
                                        (unsigned int)seed, (unsigned int)(seed >> 32));
        __syncwarp();  // the whole warp has read the lane's state
        for (int c = thread; c < padded; c += 32) {
            float after = 0.0f;
            if (!reset) {
                const float before = obs[row + c];
                const bool bit = (before != 0.0f) != (c == flipped);
                after = c < 2 * bits && bit ? 1.0f : 0.0f;
                obs_tm1[row + c] = before;
                obs_t[row + c] = after;
            }
            obs[row + c] = restart ? first_bit(drawn, c, bits) : after;
        }
        if (thread == 0) {
            lane_steps[lane] = restart ? 0 : steps;
            lane_episode[lane] = begun + (restart ? 1 : 0);
        }
    }
}
