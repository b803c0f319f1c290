// The step counter and the batch's place (km_advance.py). One thread.
extern "C" __global__ void km_advance(long long* __restrict__ step, int* __restrict__ first,
                                      int rows, int batch) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    first[0] = (int)(step[0] * batch % rows);
    step[0] += 1;
}
