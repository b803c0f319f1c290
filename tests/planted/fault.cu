// Each of the faults that one tool of compute-sanitizer is for; see fault.py.
extern "C" __global__ void fault(const int* __restrict__ unwritten, int* __restrict__ out, int which,
                                 int n) {
    __shared__ int shared[64];
    const int t = threadIdx.x;
    shared[t] = t;
    __syncthreads();
    if (which == 0) {
        out[n + t] = t;  // beyond the array
    } else if (which == 1) {
        shared[t] = shared[(t + 33) % 64] + 1;  // the neighbour's warp may have written already
        __syncthreads();
        out[t % n] = shared[t];
    } else if (which == 2) {
        if (unwritten[t % n] == 7) out[t % n] = 1;  // no one has written it
    } else if (which == 3) {
        __syncwarp(0x0000ffffu);  // half of those who call it are not in the mask
        out[t % n] = shared[t];
    }
}
