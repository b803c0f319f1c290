// The batch's inertia (km_inertia.py). One thread: the order of the sum is part of the result.
extern "C" __global__ void km_inertia(const float* __restrict__ distance,
                                      double* __restrict__ inertia, int batch) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    double sum = inertia[0];
    for (int i = 0; i < batch; ++i) sum += (double)distance[i];
    inertia[0] = sum;
}
