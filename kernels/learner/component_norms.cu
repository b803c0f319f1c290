// Sums of squares of one chunk of the gradient a block, a column a group (component_norms.py).
#include "learner/budget.cuh"

__device__ inline double square_sum(const float* __restrict__ x, long long start, long long stop) {
    // Thread t keeps to the elements t, t + LANES, ... of the chunk, wherever the range begins.
    long long i = start / LANES * LANES + threadIdx.x;
    double sum = 0.0;
    for (i = i < start ? i + LANES : i; i < stop; i += LANES) {
        double g = (double)x[i];
        sum += g * g;
    }
    return block_sum(sum);
}

extern "C" __global__ void component_norms(const float* __restrict__ grad,
                                           const float* __restrict__ aux,
                                           const long long* __restrict__ ends,
                                           double* __restrict__ squares, long long n, int parts,
                                           int with_aux) {
    long long chunk = chunk_size(n, parts);
    for (long long part = blockIdx.x; part < parts; part += gridDim.x) {
        long long begin = part * chunk, end = begin + chunk < n ? begin + chunk : n, from = 0;
        for (int column = 0; column < NORM_COLUMNS; ++column) {
            long long start = begin, stop = end;
            if (column < ADAM_GROUPS) {
                start = from > begin ? from : begin;
                stop = ends[column] < end ? ends[column] : end;
                from = ends[column] > from ? ends[column] : from;
            }
            bool read = column == AUX_COLUMN ? with_aux : !(with_aux && column == ADAM_DENOISE);
            double sum = 0.0;
            if (read && start < stop) {
                sum = square_sum(column == AUX_COLUMN ? aux : grad, start, stop);
            }
            if (threadIdx.x == 0) squares[column * (long long)parts + part] = sum;
        }
    }
}
