// Mean over the levels, blended with the plain head: a thread has one column of one row
// (iqn_values.py).
extern "C" __global__ void iqn_values(const float* __restrict__ head,
                                      const float* __restrict__ head_plain,
                                      const double* __restrict__ ready, float* __restrict__ values,
                                      int rows, int quantiles, int stride) {
    double w = ready[1];
    long long total = (long long)rows * stride;
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < total;
         k += (long long)gridDim.x * blockDim.x) {
        if (w == 0.0) {
            values[k] = head_plain[k];
            continue;
        }
        long long row = k / stride;
        const float* sample = head + row * quantiles * stride + (k - row * stride);
        double sum = 0.0;
#pragma unroll 8
        for (int j = 0; j < quantiles; ++j) sum += (double)sample[(long long)j * stride];
        double mean = sum / (double)quantiles;
        values[k] = (float)(w == 1.0 ? mean : (1.0 - w) * (double)head_plain[k] + w * mean);
    }
}
