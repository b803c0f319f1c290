// Write one transition of every lane into the ring, a warp a lane; see insert_rows.py.
#include "common/layout.cuh"

extern "C" __global__ void insert_rows(
    const float* __restrict__ obs, const int* __restrict__ action,
    const float* __restrict__ reward, const unsigned char* __restrict__ step_flags,
    const float* __restrict__ next_obs, const long long* __restrict__ episode,
    const long long* __restrict__ counters, const float* __restrict__ max_leaf,
    float* __restrict__ state, int* __restrict__ ring_action, float* __restrict__ ring_reward,
    unsigned char* __restrict__ ring_flags, float* __restrict__ next_state,
    long long* __restrict__ ring_episode, unsigned int* __restrict__ generation,
    float* __restrict__ leaves, long long* __restrict__ diagnostics, int lanes, int padded,
    int slots) {
    const long long head = counters[HEAD];
    if (head < 0 || head >= slots) return;
    const int thread = threadIdx.x & 31;
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    for (long long lane = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5);
         lane < lanes; lane += warps) {
        const long long row = head * lanes + lane;
        bool finite = isfinite(reward[lane]);
        for (int column = thread; column < padded; column += 32) {
            const float before = obs[lane * padded + column];
            const float after = next_obs[lane * padded + column];
            const bool good_before = isfinite(before), good_after = isfinite(after);
            state[row * padded + column] = good_before ? before : 0.0f;
            next_state[row * padded + column] = good_after ? after : 0.0f;
            finite = finite && good_before && good_after;
        }
        const bool broken = !__all_sync(0xffffffffu, finite);
        if (thread == 0) {
            const unsigned char flags = (unsigned char)(step_flags[lane] | (broken ? F_INVALID : 0));
            ring_action[row] = action[lane];
            ring_reward[row] = isfinite(reward[lane]) ? reward[lane] : 0.0f;
            ring_flags[row] = flags;
            ring_episode[row] = episode[lane];
            generation[row] += 1u;
            leaves[row] = flags & F_INVALID ? 0.0f : max_leaf[0];
            if (broken) atomicAdd((unsigned long long*)&diagnostics[D_INVALID_ROW], 1ULL);
        }
    }
}
