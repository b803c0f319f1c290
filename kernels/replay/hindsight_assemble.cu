// Hindsight donors and n-step returns of drawn rows, a warp a row; see hindsight_assemble.py.
#include "replay/hindsight.cuh"

extern "C" __global__ void hindsight_assemble(
    const int* __restrict__ index, const float* __restrict__ reward,
    const unsigned char* __restrict__ flags, const long long* __restrict__ episode,
    const float* __restrict__ next_state, const long long* __restrict__ counters,
    int* __restrict__ last, int* __restrict__ donor, float* __restrict__ ret,
    float* __restrict__ discount, int n, int lanes, int slots, int padded, int n_step, double gamma,
    int achieved, int width, int strategy, double share, unsigned long long seed) {
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    const Ring ring =
        ring_of(reward, flags, episode, next_state, counters, lanes, slots, padded);
    const Hindsight with = {n_step, achieved, width, strategy,
                            gamma,  share,    seed,  (unsigned int)counters[RNG]};
    // A negative index is past every row.
    const auto drawn_at = [=](long long other) { return (unsigned int)index[other]; };
    for (long long i = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5); i < n;
         i += warps) {
        const Relabelled found = relabel(ring, with, i, n, drawn_at(i), drawn_at);
        if ((threadIdx.x & 31) == 0) {
            last[i] = found.last;
            donor[i] = found.donor;
            ret[i] = (float)found.total;
            discount[i] = (float)found.carried;
        }
    }
}
