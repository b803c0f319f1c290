// Up to four products in one launch, a tile a block; see gemm_group.py.
#include "learner/gemm.cuh"

#define CEIL(X, Y) (((X) + (Y) - 1) / (Y))

__device__ inline Product product(const float* a, const float* b, float* extra, float* out, int m,
                                  int n, int k, int form) {
    // One bit each for the transposes, three for the epilogue, the rest is the tile's height.
    return Product{a, b, extra, out, m, n, k, form & 1, form >> 1 & 1, form >> 2 & 7, form >> 5};
}

__device__ inline long long tiles_of(const Product& p) {
    return p.m > 0 ? (long long)CEIL(p.m, p.tile_m) * CEIL(p.n, TN) : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemm_group(const float* a0, const float* b0, float* extra0, float* out0, int m0, int n0, int k0,
           int form0, const float* a1, const float* b1, float* extra1, float* out1, int m1, int n1,
           int k1, int form1, const float* a2, const float* b2, float* extra2, float* out2, int m2,
           int n2, int k2, int form2, const float* a3, const float* b3, float* extra3, float* out3,
           int m3, int n3, int k3, int form3, int tiles) {
    __shared__ __align__(16) float shared[TILE_FLOATS];
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        // The member is the block's: its arguments are chosen before the tile's code, which is
        // there once.
        long long at = t;
        Product p = product(a0, b0, extra0, out0, m0, n0, k0, form0);
        if (at >= tiles_of(p)) {
            at -= tiles_of(p);
            p = product(a1, b1, extra1, out1, m1, n1, k1, form1);
            if (at >= tiles_of(p)) {
                at -= tiles_of(p);
                p = product(a2, b2, extra2, out2, m2, n2, k2, form2);
                if (at >= tiles_of(p)) {
                    at -= tiles_of(p);
                    p = product(a3, b3, extra3, out3, m3, n3, k3, form3);
                    if (at >= tiles_of(p)) return;  // more tiles than the products have
                }
            }
        }
        multiply_tile(shared, p, at, CEIL(p.n, TN));
    }
}
