// Sums over one block of LANES threads in one stated order (see reduce.py). Thread 0 gets the result.
// A larger block's other threads take part, and what they give is left out.
#pragma once

#define LANES 256

__device__ inline double nan_max(double a, double b) { return (b > a || isnan(b)) && !isnan(a) ? b : a; }

// Length of each of the parts chunks of n elements.
__device__ inline long long chunk_size(long long n, int parts) {
    long long wave = (long long)parts * LANES;
    return (n + wave - 1) / wave * LANES;
}

// Sum over a warp, which every lane gets: additions commute, so that all have the same bits.
template <typename Real>
__device__ inline Real warp_sum(Real value) {
    for (int width = 16; width; width >>= 1) value += __shfl_xor_sync(0xffffffffu, value, width);
    return value;
}

// Not inlined: small kernels run their code once, and wait for it.
__device__ __noinline__ double block_sum(double value) {
    __shared__ double lanes[LANES];
    int t = threadIdx.x;
    __syncthreads();  // the last call's readers are done
    if (t < LANES) lanes[t] = value;
    __syncthreads();
    if (t < 128) lanes[t] += lanes[t + 128];
    __syncthreads();
    if (t < 64) lanes[t] += lanes[t + 64];
    __syncthreads();
    if (t < 32) {
        value = lanes[t] + lanes[t + 32];
        for (int width = 16; width; width >>= 1) value += __shfl_down_sync(0xffffffffu, value, width);
    }
    return value;
}

__device__ inline double block_max(double value) {
    __shared__ double lanes[LANES];
    int t = threadIdx.x;
    __syncthreads();
    if (t < LANES) lanes[t] = value;
    __syncthreads();
    for (int width = 128; width; width >>= 1) {
        if (t < width) lanes[t] = nan_max(lanes[t], lanes[t + width]);
        __syncthreads();
    }
    return lanes[0];
}
