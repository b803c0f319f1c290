// Recompute the ancestors of the leaves just inserted, by one block; see refresh_inserted.py.
#include "replay/tree.cuh"

// The ancestors of neighbouring leaves are neighbours.
struct TouchedRange {
    long long first, last;
    __device__ long long count(int level, long long) const {
        return (last >> (5 * level)) - (first >> (5 * level)) + 1;
    }
    __device__ long long node(int level, long long, long long k) const {
        return (first >> (5 * level)) + k;
    }
};

extern "C" __global__ void __launch_bounds__(1024) refresh_inserted(
    const float* leaves, double* nodes, const long long* __restrict__ counters, int lanes,
    int slots, long long leaf_count) {
    const long long head = counters[HEAD];
    const long long first = head * lanes;
    const long long end = first + lanes < leaf_count ? first + lanes : leaf_count;
    if (head < 0 || head >= slots || first >= end) return;
    refresh_levels(leaves, nodes, leaf_count, TouchedRange{first, end - 1});
}
