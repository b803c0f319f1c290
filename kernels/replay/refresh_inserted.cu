// Recompute the ancestors of the leaves just inserted, by one block; see refresh_inserted.py.
#include "replay/tree.cuh"

// The ancestors of neighbouring leaves are neighbours.
struct TouchedRange {
    unsigned int first, last;
    __device__ unsigned int above(unsigned int leaf, int level) const {
        return 5 * level < 32 ? leaf >> (5 * level) : 0;
    }
    __device__ int count(int level, int) const {
        return (int)(above(last, level) - above(first, level)) + 1;
    }
    __device__ int node(int level, int, int k) const { return (int)above(first, level) + k; }
};

extern "C" __global__ void __launch_bounds__(512) refresh_inserted(
    const float* leaves, double* nodes, const long long* __restrict__ counters, int lanes,
    int slots, long long leaf_count) {
    const long long head = counters[HEAD];
    const long long first = head * lanes;
    const long long end = first + lanes < leaf_count ? first + lanes : leaf_count;
    if (head < 0 || head >= slots || first >= end) return;
    refresh_levels<4>(leaves, nodes, leaf_count, TouchedRange{(unsigned int)first, (unsigned int)(end - 1)});
}
