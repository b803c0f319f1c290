// n-step returns of drawn rows; see nstep_assemble.py.
#include "common/layout.cuh"

extern "C" __global__ void nstep_assemble(const int* __restrict__ index,
                                          const float* __restrict__ reward,
                                          const unsigned char* __restrict__ flags,
                                          const long long* __restrict__ counters,
                                          int* __restrict__ last, float* __restrict__ ret,
                                          float* __restrict__ discount, int n, int lanes, int slots,
                                          int n_step, double gamma) {
    const long long rows = (long long)slots * lanes;
    const long long head = counters[HEAD];
    const long long filled = counters[FILLED] < rows ? counters[FILLED] : rows;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        long long row = index[i], end = -1;
        double total = 0.0, power = 1.0, carried = 0.0;
        if (row >= 0 && row < filled) {
            end = row;
            for (int k = 0; k < n_step; ++k) {
                const unsigned char row_flags = flags[row];
                if (row_flags & F_INVALID) break;
                total = __dadd_rn(total, __dmul_rn(power, (double)reward[row]));
                power = __dmul_rn(power, gamma);
                end = row;
                carried = row_flags & F_TERMINATED ? 0.0 : power;
                if (row_flags & (F_TERMINATED | F_TRUNCATED)) break;
                row += lanes;
                if (row >= rows) row -= rows;
                if (row / lanes == head) break;
            }
        }
        last[i] = (int)end;
        ret[i] = (float)total;
        discount[i] = (float)carried;
    }
}
