// Sum of squares of one chunk of the gradient a block (grad_norm_partial.py).
#include "learner/squares.cuh"

extern "C" __global__ void grad_norm_partial(const float* __restrict__ grad,
                                             double* __restrict__ partial, long long n, int parts) {
    sum_squares(grad, partial, n, parts);
}
