// Noise factors and effective weights of up to three passes, a tile of a layer a block
// (noisy_weights.py).
#include "learner/noisy.cuh"

extern "C" __global__ void noisy_weights(const float* __restrict__ params,
                                         const float* __restrict__ target,
                                         const long long* __restrict__ table,
                                         const long long* __restrict__ counters,
                                         float* __restrict__ out0, float* __restrict__ out1,
                                         float* __restrict__ out2, float* __restrict__ factors,
                                         int layers, int tiles, int first, int passes,
                                         unsigned long long seed) {
    __shared__ float factor[2 * NOISY_TILE];  // of the tile's rows, then of its columns
    unsigned int step = (unsigned int)(first == N_ACT ? counters[COLLECT] : counters[RNG] - 1);
    int t = threadIdx.x, lane = t & 31;
    for (long long unit = blockIdx.x; unit < (long long)tiles * passes; unit += gridDim.x) {
        int slot = (int)(unit / tiles), pass = first + slot;
        NoisyTile tile = noisy_tile(table, layers, unit % tiles);
        NoisyLayer layer = tile.layer;
        if (t < 2 * NOISY_TILE) {
            bool is_row = t < NOISY_TILE;
            long long place = (is_row ? tile.row : tile.column) + lane;
            long long index = layer.factor + place + (is_row ? 0 : layer.fan_in);
            float value = 1.0f;
            if (place < (is_row ? layer.fan_in : layer.fan_out)) {
                value = noise_factor(seed, index, pass, step);
                if (slot == 0 && (is_row ? tile.column : tile.row) == 0) factors[index] = value;
            }
            factor[t] = value;
        }
        __syncthreads();
        const float* source = pass == N_TARGET ? target : params;
        float* out = slot == 0 ? out0 : (slot == 1 ? out1 : out2);
        long long column = tile.column + lane;
        for (int r = t >> 5; r < NOISY_TILE; r += NOISY_THREADS / 32) {
            long long row = tile.row + r;
            if (row > layer.fan_in || column >= layer.fan_out) continue;
            bool bias = row == layer.fan_in;
            long long place = (bias ? 0 : row * layer.fan_out) + column;
            long long mu = (bias ? layer.bias : layer.weight) + place;
            long long sigma = (bias ? layer.bias_sigma : layer.weight_sigma) + place;
            out[mu] = source[mu] + source[sigma] * (factor[r] * factor[NOISY_TILE + lane]);
        }
        __syncthreads();  // the factors are read before the next tile's are written
    }
}
