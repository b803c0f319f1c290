// Recompute the nodes above the leaves that a batch touched, eight lanes a node; refresh_touched.py.
#include "replay/tree.cuh"

extern "C" __global__ void __launch_bounds__(256)
refresh_touched(const float* __restrict__ leaves, double* __restrict__ nodes,
                const int* __restrict__ index, long long leaf_count, int n, int lanes) {
    refresh_above<false>(leaves, nodes, index, (unsigned int)leaf_count, n);
}
