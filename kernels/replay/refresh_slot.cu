// Recompute two levels above the leaves of the slot just inserted; see refresh_slot.py.
#include "replay/tree.cuh"

extern "C" __global__ void __launch_bounds__(256)
refresh_slot(const float* __restrict__ leaves, double* nodes,
             const long long* __restrict__ counters, int lanes, int slots, long long leaf_count,
             int level, int groups) {
    const long long head = counters[HEAD];
    const long long first = head * lanes;
    const long long end = first + lanes < leaf_count ? first + lanes : leaf_count;
    if (head < 0 || head >= slots || first >= end) return;
    const unsigned int low = group_above((unsigned int)first, level);
    const unsigned int high = group_above((unsigned int)(end - 1), level);
    for (unsigned int k = blockIdx.x; k < (unsigned int)groups && low + k <= high; k += gridDim.x)
        refresh_group(leaves, nodes, (unsigned int)leaf_count, level, low + k);
}
