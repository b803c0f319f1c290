// Squared error of decoded states and its gradient, a row a warp (denoise_loss.py).
#include "learner/warp_sum.cuh"

extern "C" __global__ void denoise_loss(const float* __restrict__ decoded,
                                        const float* __restrict__ clean, float* __restrict__ loss,
                                        float* __restrict__ grad, int rows, int width, int padded,
                                        double weight) {
    const int lane = threadIdx.x & 31;
    const double features = (double)(width > 1 ? width : 1);
    const double slope = (2.0 * weight) / ((double)rows * features);
    for (long long row = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5); row < rows;
         row += (long long)gridDim.x * (blockDim.x >> 5)) {
        double sum = 0.0;
        for (int column = lane; column < padded; column += 32) {
            const long long i = row * padded + column;
            const bool real = column < width;
            const double error = real ? (double)(decoded[i] - clean[i]) : 0.0;
            grad[i] = (float)(slope * error);
            if (real) sum += error * error;
        }
        sum = warp_sum(sum);
        if (lane == 0) loss[row] = (float)((weight / features) * sum);
    }
}
