// Hindsight donors and n-step returns of drawn rows, a warp a row; see hindsight_assemble.py.
#include "common/layout.cuh"
#include "common/philox.cuh"

// Rows whose rewards and goals are asked for at once: they do not depend on one another.
#define ROWS_IN_FLIGHT 4

enum Strategy { H_FUTURE = 1, H_FINAL = 2, H_RANDOM = 3 };

#define ALL_LANES 0xffffffffu

extern "C" __global__ void hindsight_assemble(
    const int* __restrict__ index, const float* __restrict__ reward,
    const unsigned char* __restrict__ flags, const long long* __restrict__ episode,
    const float* __restrict__ next_state, const long long* __restrict__ counters,
    int* __restrict__ last, int* __restrict__ donor, float* __restrict__ ret,
    float* __restrict__ discount, int n, int lanes, int slots, int padded, int n_step, double gamma,
    int achieved, int width, int strategy, double share, unsigned long long seed) {
    const int thread = threadIdx.x & 31;
    const long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    // A row's index fits an int (capacities are below 2^31); unsigned, a row plus a lane's way does.
    const unsigned int rows = (unsigned int)slots * (unsigned int)lanes;
    const long long held = counters[FILLED];
    const unsigned int filled = held < 0 ? 0 : held < rows ? (unsigned int)held : rows;
    const int head = (int)((counters[HEAD] % slots + slots) % slots);
    const unsigned int step = (unsigned int)counters[RNG];
    for (long long i = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5); i < n;
         i += warps) {
        const unsigned int row = (unsigned int)index[i];  // a negative one is past every row
        int end = -1, from = -1;
        double total = 0.0, power = 1.0, carried = 0.0;
        if (row < filled) {
            end = (int)row;
            const Uniform2 drawn = philox_uniform(seed, (unsigned int)i, step, T_HINDSIGHT);
            bool relabelled = drawn.u[0] < share;
            const int ahead = head - (int)(row / (unsigned int)lanes);
            const int reach = ahead > 0 ? ahead : ahead + slots;
            const bool whole = relabelled && (strategy == H_FUTURE || strategy == H_FINAL);
            const int limit = whole || reach < n_step ? reach : n_step;

            // Rows from this one to its episode's last one that is stored, or as many as matter.
            const long long own = episode[row];
            int span = 0;
            for (int base = 0; base < limit; base += 32) {
                const int k = base + thread;
                bool closed = k >= limit, ends = false;
                if (!closed) {
                    unsigned int at = row + (unsigned int)k * (unsigned int)lanes;
                    if (at >= rows) at -= rows;
                    const unsigned char mark = flags[at];
                    closed = (mark & F_INVALID) != 0 || episode[at] != own;
                    ends = !closed && (mark & (F_TERMINATED | F_TRUNCATED)) != 0;
                }
                const int before = __ffs((int)__ballot_sync(ALL_LANES, closed));  // 0: none
                const int upto = __ffs((int)__ballot_sync(ALL_LANES, ends));
                const int open = before ? before - 1 : 32;
                span = base + (upto && upto <= open ? upto : open);
                if (before || upto) break;
            }

            relabelled = relabelled && span > 0;
            if (relabelled && strategy == H_RANDOM) {
                relabelled = n > 1;
                if (relabelled) {
                    long long other = (long long)(drawn.u[1] * (double)(n - 1));
                    other = other < n - 1 ? other : n - 2;
                    other += other >= i;
                    const unsigned int taken = (unsigned int)index[other];
                    relabelled = taken < filled && !(flags[taken] & F_INVALID);
                    from = relabelled ? (int)taken : -1;
                }
            } else if (relabelled) {
                int k = span - 1;
                if (strategy == H_FUTURE) {
                    const int drawn_step = (int)(drawn.u[1] * (double)span);
                    k = drawn_step < k ? drawn_step : k;
                }
                unsigned int at = row + (unsigned int)k * (unsigned int)lanes;
                from = (int)(at >= rows ? at - rows : at);
            }

            const float* goal = next_state + (long long)(relabelled ? from : 0) * padded + achieved;
            const int taken = span < n_step ? span : n_step;
            bool reached = false;
            for (int first = 0; !reached && first < taken; first += ROWS_IN_FLIGHT) {
                unsigned int at[ROWS_IN_FLIGHT];
                float gained[ROWS_IN_FLIGHT];
                bool equal[ROWS_IN_FLIGHT];
#pragma unroll
                for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
                    const int k = first + u < taken ? first + u : 0;
                    at[u] = row + (unsigned int)k * (unsigned int)lanes;
                    if (at[u] >= rows) at[u] -= rows;
                    gained[u] = relabelled ? -1.0f : reward[at[u]];
                    equal[u] = relabelled;
                }
                if (relabelled) {
                    for (int c = thread; c < width; c += 32) {
                        const float wanted = goal[c];
#pragma unroll
                        for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
                            const float got = next_state[(long long)at[u] * padded + achieved + c];
                            equal[u] = equal[u] && got == wanted;
                        }
                    }
                }
#pragma unroll
                for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
                    const bool there = __all_sync(ALL_LANES, equal[u]);
                    if (reached || first + u >= taken) continue;
                    reached = there;
                    total = total + power * (double)(there ? 0.0f : gained[u]);
                    power = power * gamma;
                    end = (int)at[u];
                }
            }
            const bool stops = relabelled ? reached : (flags[end] & F_TERMINATED) != 0;
            carried = taken > 0 && !stops ? power : 0.0;
        }
        if (thread == 0) {
            last[i] = end;
            donor[i] = from;
            ret[i] = (float)total;
            discount[i] = (float)carried;
        }
    }
}
