// Scale TD errors by their advantage over the value networks, a row a thread (iql_modulate.py).
#include "common/detmath.cuh"

extern "C" __global__ void iql_modulate(float* __restrict__ td, const float* __restrict__ q,
                                        const float* __restrict__ v_hi,
                                        const float* __restrict__ v_lo, int rows, double k,
                                        double eps, double low, double high) {
    const double largest_exponent = 20.0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < rows;
         i += (long long)gridDim.x * blockDim.x) {
        const double lower = (double)v_lo[i];
        double spread = (double)v_hi[i] - lower;
        if (spread < 0.0) spread = 0.0;  // a NaN stays one
        const double exponent = (k * ((double)q[i] - lower)) / (spread + eps);
        double factor = det_exp(exponent > largest_exponent ? largest_exponent : exponent);
        if (factor < low) factor = low;
        if (factor > high) factor = high;
        td[i] = (float)((double)td[i] * factor);
    }
}
