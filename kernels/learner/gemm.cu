// Tiled float32 matrix multiply with an epilogue; see gemm.py.
#include "learner/gemm.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ extra,
     float* __restrict__ out, int m, int n, int k, int trans_a, int trans_b, int epilogue,
     int tile_m, int tiles_m, int tiles_n) {
    __shared__ __align__(16) float shared[TILE_FLOATS];
    const Product product = {a, b, extra, out, m, n, k, trans_a, trans_b, epilogue, tile_m};
    const long long tiles = (long long)tiles_m * tiles_n;
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x)
        multiply_tile(shared, product, t, tiles_n);
}
