// Recompute two levels above the leaves that a batch touched; see refresh_drawn.py.
#include "replay/tree.cuh"

extern "C" __global__ void __launch_bounds__(256)
refresh_drawn(const float* __restrict__ leaves, double* nodes, const int* __restrict__ index,
              long long leaf_count, int level, int groups) {
    const bool whole = (unsigned int)groups >= tree_size((unsigned int)leaf_count, level + 1);
    for (int k = blockIdx.x; k < groups; k += gridDim.x) {
        const int leaf = whole ? 0 : index[k];
        if (leaf < 0 || leaf >= leaf_count) continue;  // the same for the whole block
        const unsigned int group =
            whole ? (unsigned int)k : group_above((unsigned int)leaf, level);
        refresh_group(leaves, nodes, (unsigned int)leaf_count, level, group);
    }
}
