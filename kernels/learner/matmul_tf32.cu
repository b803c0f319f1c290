// Up to four products with their factors as TF32; see matmul.py.
#define PRECISION TF32
#include "learner/matmul.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
matmul_tf32(const float* a0, const float* b0, float* extra0, float* out0, int m0, int n0, int k0,
            int form0, const float* a1, const float* b1, float* extra1, float* out1, int m1, int
            n1, int k1, int form1, const float* a2, const float* b2, float* extra2, float* out2,
            int m2, int n2, int k2, int form2, const float* a3, const float* b3, float* extra3,
            float* out3, int m3, int n3, int k3, int form3, int turns, int cluster, int shared_bytes) {
    extern __shared__ __align__(16) float shared[];
    multiply_products(shared,
                      product(a0, b0, extra0, out0, m0, n0, k0, form0),
                      product(a1, b1, extra1, out1, m1, n1, k1, form1),
                      product(a2, b2, extra2, out2, m2, n2, k2, form2),
                      product(a3, b3, extra3, out3, m3, n3, k3, form3),
                      turns);
}
