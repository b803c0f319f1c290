// Project the vaccine's conflict out of the gradient, a chunk a block (project_gradient.py).
#include "learner/reduce.cuh"

extern "C" __global__ void project_gradient(float* __restrict__ grad,
                                            const float* __restrict__ vaccine,
                                            const double* __restrict__ dots,
                                            float* __restrict__ removed,
                                            double* __restrict__ partial, long long n, int parts) {
    __shared__ double sums[2];
    int t = threadIdx.x, lane = t & 31;
    if (t < 64) {  // every block adds the few sums: cheaper than another kernel that does it once
        const double* mine = dots + (t >> 5) * (long long)parts;
        double sum = 0.0;
        for (int part = lane; part < parts; part += 32) sum += mine[part];
        sum = warp_sum(sum);
        if (lane == 0) sums[t >> 5] = sum;
    }
    __syncthreads();
    double cross = sums[0], square = sums[1];
    bool conflict = cross < 0.0 && isfinite(cross) && isfinite(square) && square > 0.0;
    double factor = conflict ? cross / square : 0.0;
    if (blockIdx.x == 0 && t == 0) removed[0] = (float)factor;

    long long chunk = chunk_size(n, parts);
    for (long long part = blockIdx.x; part < parts; part += gridDim.x) {
        long long end = part * chunk + chunk < n ? part * chunk + chunk : n;
        double norm = 0.0;
        for (long long i = part * chunk + t; i < end; i += LANES) {
            float g = grad[i];
            if (conflict) {
                g = (float)((double)g - factor * (double)vaccine[i]);
                grad[i] = g;
            }
            norm += (double)g * (double)g;
        }
        norm = block_sum(norm);
        if (t == 0) partial[part] = norm;
    }
}
