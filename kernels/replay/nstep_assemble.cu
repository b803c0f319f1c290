// n-step returns of drawn rows; see nstep_assemble.py.
#include "common/layout.cuh"

// Rows whose flags and rewards are asked for at once: they do not depend on one another.
#define ROWS_IN_FLIGHT 4

extern "C" __global__ void nstep_assemble(const int* __restrict__ index,
                                          const float* __restrict__ reward,
                                          const unsigned char* __restrict__ flags,
                                          const long long* __restrict__ counters,
                                          int* __restrict__ last, float* __restrict__ ret,
                                          float* __restrict__ discount, int n, int lanes, int slots,
                                          int n_step, double gamma) {
    // A row's index fits an int (capacities are below 2^31); unsigned, a row plus a lane's step does.
    const unsigned int rows = (unsigned int)slots * (unsigned int)lanes;
    const int head = (int)counters[HEAD];
    const long long held = counters[FILLED];
    const unsigned int filled = held < 0 ? 0 : held < rows ? (unsigned int)held : rows;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        unsigned int row = (unsigned int)index[i];  // a negative one is past every row
        int end = -1;
        double total = 0.0, power = 1.0, carried = 0.0;
        if (row < filled) {
            end = (int)row;
            int slot = (int)(row / (unsigned int)lanes);
            bool open = true;
            for (int first = 0; open && first < n_step; first += ROWS_IN_FLIGHT) {
                int at[ROWS_IN_FLIGHT];
                unsigned char row_flags[ROWS_IN_FLIGHT];
                float row_reward[ROWS_IN_FLIGHT];
#pragma unroll
                for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
                    at[u] = (int)row;
                    row_flags[u] = flags[row];
                    row_reward[u] = reward[row];
                    row += lanes;
                    if (row >= rows) row -= rows;
                }
#pragma unroll
                for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
                    if (!open || first + u >= n_step) break;
                    if (row_flags[u] & F_INVALID) {
                        open = false;
                        break;
                    }
                    total = __dadd_rn(total, __dmul_rn(power, (double)row_reward[u]));
                    power = __dmul_rn(power, gamma);
                    end = at[u];
                    carried = row_flags[u] & F_TERMINATED ? 0.0 : power;
                    slot = slot + 1 == slots ? 0 : slot + 1;
                    open = !(row_flags[u] & (F_TERMINATED | F_TRUNCATED)) && slot != head;
                }
            }
        }
        last[i] = end;
        ret[i] = (float)total;
        discount[i] = (float)carried;
    }
}
