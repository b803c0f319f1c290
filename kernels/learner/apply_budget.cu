// Scale each component of the gradient to its budget and add them, a chunk a block (apply_budget.py).
#include "learner/budget.cuh"

extern "C" __global__ void apply_budget(float* __restrict__ grad, const float* __restrict__ aux,
                                        const long long* __restrict__ ends,
                                        const double* __restrict__ squares,
                                        const double* __restrict__ shares, float* __restrict__ norms,
                                        float* __restrict__ scales, double* __restrict__ partial,
                                        long long n, int parts, int with_aux, double max_norm) {
    __shared__ long long end[ADAM_GROUPS];
    __shared__ double sums[NORM_COLUMNS];
    __shared__ float scale[COMPONENTS];
    int t = threadIdx.x, lane = t & 31;
    // Every block forms the scales, a warp a column: cheaper than another kernel that does it once.
    for (int column = t >> 5; column < NORM_COLUMNS; column += LANES / 32) {
        double sum = 0.0;
        for (int part = lane; part < parts; part += 32) sum += squares[column * (long long)parts + part];
        sum = warp_sum(sum);
        if (lane == 0) sums[column] = sum;
    }
    if (t < ADAM_GROUPS) end[t] = ends[t];
    __syncthreads();
    if (t < COMPONENTS) {
        double norm = sqrt(component_square(sums, t));
        scale[t] = budget_scale(norm, shares[t], max_norm);
        if (blockIdx.x == 0) {
            norms[t] = (float)norm;
            scales[t] = scale[t];
        }
    }
    __syncthreads();

    long long chunk = chunk_size(n, parts);
    for (long long part = blockIdx.x; part < parts; part += gridDim.x) {
        long long stop = part * chunk + chunk < n ? part * chunk + chunk : n;
        double square = 0.0;
        for (long long i = part * chunk + t; i < stop; i += LANES) {
            int group = 0;
            while (group < ADAM_GROUPS && i >= end[group]) ++group;
            bool read = group < ADAM_GROUPS && !(with_aux && group == ADAM_DENOISE);
            float total = read ? scaled(grad[i], scale[component_of(group)]) : 0.0f;
            if (with_aux) total += scaled(aux[i], scale[C_DENOISE]);
            grad[i] = total;
            square += (double)total * (double)total;
        }
        square = block_sum(square);
        if (t == 0) partial[part] = square;
    }
}
