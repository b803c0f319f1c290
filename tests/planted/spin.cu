// Keeps one thread busy for a number of clock cycles; see spin.py.
extern "C" __global__ void spin(long long* __restrict__ spun, long long cycles, double seconds) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    const long long start = clock64();
    while (clock64() - start < cycles) {}
    spun[0] += 1;
}
