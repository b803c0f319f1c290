// Gradients of the noisy layers' sigmas, a tile of a layer a block (noisy_grad.py).
#include "learner/noisy.cuh"

extern "C" __global__ void noisy_grad(float* __restrict__ grad, const float* __restrict__ factors,
                                      const long long* __restrict__ table, int layers, int tiles) {
    int t = threadIdx.x;
    for (long long unit = blockIdx.x; unit < tiles; unit += gridDim.x) {
        NoisyTile tile = noisy_tile(table, layers, unit);
        NoisyLayer layer = tile.layer;
        long long column = tile.column + (t & 31);
        if (column >= layer.fan_out) continue;
        float out = factors[layer.factor + layer.fan_in + column];
        for (int r = t >> 5; r < NOISY_TILE; r += NOISY_THREADS / 32) {
            long long row = tile.row + r;
            if (row > layer.fan_in) continue;
            bool bias = row == layer.fan_in;
            long long place = (bias ? 0 : row * layer.fan_out) + column;
            float in = bias ? 1.0f : factors[layer.factor + row];
            grad[(bias ? layer.bias_sigma : layer.weight_sigma) + place] =
                grad[(bias ? layer.bias : layer.weight) + place] * (in * out);
        }
    }
}
