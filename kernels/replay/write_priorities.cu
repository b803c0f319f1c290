// Write the leaves of the positions that own their slots; see write_priorities.py.
extern "C" __global__ void __launch_bounds__(256)
write_priorities(const float* __restrict__ leaf, const int* __restrict__ index, int* owner,
                 float* __restrict__ leaves, float* max_leaf, int n, long long leaf_count) {
    __shared__ int largest;  // the bits of a float >= 0, which order as the numbers do
    if (threadIdx.x == 0) largest = 0;
    __syncthreads();
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        const long long row = index[i];
        if (row < 0 || row >= leaf_count || owner[row] != (int)i) continue;
        leaves[row] = leaf[i];
        owner[row] = -1;  // no position is -1, so that those who lost still do
        atomicMax(&largest, __float_as_int(leaf[i]));
    }
    __syncthreads();
    if (threadIdx.x == 0 && largest > 0) atomicMax((int*)max_leaf, largest);
}
