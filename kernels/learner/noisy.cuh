// Factorised noise of linear layers, tile by tile (noisy.py).
#pragma once
#include "common/layout.cuh"
#include "common/normal.cuh"

enum NoisyPass { N_ONLINE = 0, N_TARGET = 1, N_SELECT = 2, N_ACT = 3 };
#define NOISY_PASSES 4
#define NOISY_TILE 32
#define NOISY_THREADS 256

struct NoisyLayer { long long weight, bias, weight_sigma, bias_sigma, fan_in, fan_out, factor, tile; };

// A tile of a layer: its first row and column. The bias is the row after the last.
struct NoisyTile { NoisyLayer layer; long long row, column; };

__device__ inline NoisyTile noisy_tile(const long long* __restrict__ table, int layers, long long tile) {
    int which = 0;
    while (which + 1 < layers && table[8 * (which + 1) + 7] <= tile) ++which;
    const long long* at = table + 8 * which;
    NoisyTile found = {{at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]}, 0, 0};
    long long wide = (found.layer.fan_out + NOISY_TILE - 1) / NOISY_TILE, place = tile - at[7];
    found.row = place / wide * NOISY_TILE;
    found.column = place % wide * NOISY_TILE;
    return found;
}

__device__ inline float noise_factor(unsigned long long seed, long long index, int pass,
                                     unsigned int step) {
    unsigned int position = (unsigned int)(index * NOISY_PASSES + pass);
    double z = normal_pair(philox_uniform(seed, position, step, T_NOISE)).z[0];
    return (float)copysign(__dsqrt_rn(fabs(z)), z);
}
