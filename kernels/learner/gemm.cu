// Tiled float32 matrix multiply with an epilogue; see gemm.py.
//
// A block computes a tile of TM x 32 outputs. Its eight warps share the k of each chunk between
// them (warp w takes eight of a chunk's 64), so that a small matrix, which has few tiles, still
// keeps eight warps a tile busy. The warps' partial sums are added at the end in the order
// 0, 1, ..., 7. That order depends on k alone: not on the tile, the grid or the alignment.
//
// What a small matrix waits for is memory, not arithmetic: up to DEPTH chunks are on their way at
// once, so that a k of 256 costs one trip to memory and not four.

#define TN 32
#define CHUNK 64
#define WARPS 8
#define THREADS 256
#define LDB (TN + 4)

// One float4 of a panel, as a thread carries it from global to shared memory.
struct Unit { float v[4]; };

// Where unit u of a panel of `rows` x CHUNK starts: row r, and k within the chunk.
// k contiguous in memory: lanes spread over 16 rows, so that the transposing stores to shared
// memory fall into different banks; two neighbours in k fill a 32-byte sector.
__device__ inline void unit_along_k(int u, int& r, int& k) {
    int rest = u >> 5;
    r = (rest / (CHUNK / 8)) * 16 + (u & 15);
    k = ((rest % (CHUNK / 8)) * 2 + ((u >> 4) & 1)) * 4;
}

// Rows contiguous in memory: lanes run along the rows, and four of them are stored in one go.
__device__ inline void unit_along_rows(int u, int rows, int& r, int& k) {
    r = (u % (rows / 4)) * 4;
    k = u / (rows / 4);
}

// The unit from `matrix`, zero outside it. along_k: element (r, k) stands at r * depth + k, else at
// k * height + r.
__device__ inline Unit load_unit(const float* __restrict__ matrix, bool along_k, bool wide, int r,
                                 int k, int height, int depth) {
    Unit unit = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (along_k) {
        if (r >= height) return unit;
        const float* row = matrix + (long long)r * depth;
        if (wide) {
            if (k < depth) {
                float4 f = *reinterpret_cast<const float4*>(row + k);
                unit = Unit{{f.x, f.y, f.z, f.w}};
            }
        } else {
            for (int i = 0; i < 4; ++i) if (k + i < depth) unit.v[i] = row[k + i];
        }
    } else {
        if (k >= depth) return unit;
        const float* row = matrix + (long long)k * height;
        if (wide) {
            if (r < height) {
                float4 f = *reinterpret_cast<const float4*>(row + r);
                unit = Unit{{f.x, f.y, f.z, f.w}};
            }
        } else {
            for (int i = 0; i < 4; ++i) if (r + i < height) unit.v[i] = row[r + i];
        }
    }
    return unit;
}

__device__ inline void store_unit(float* panel, int pitch, bool along_k, int r, int k, Unit unit) {
    if (along_k) {
        for (int i = 0; i < 4; ++i) panel[(k + i) * pitch + r] = unit.v[i];
    } else {
        *reinterpret_cast<float4*>(panel + k * pitch + r) =
            make_float4(unit.v[0], unit.v[1], unit.v[2], unit.v[3]);
    }
}

template <int ROWS>
__device__ inline void fetch(Unit (&units)[ROWS / 16], const float* __restrict__ matrix,
                             bool along_k, bool wide, int row0, int k0, int height, int depth) {
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i) {
        int r, k;
        if (along_k) unit_along_k(threadIdx.x + i * THREADS, r, k);
        else unit_along_rows(threadIdx.x + i * THREADS, ROWS, r, k);
        units[i] = load_unit(matrix, along_k, wide, row0 + r, k0 + k, height, depth);
    }
}

template <int ROWS>
__device__ inline void stage(float* panel, bool along_k, const Unit (&units)[ROWS / 16]) {
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i) {
        int r, k;
        if (along_k) unit_along_k(threadIdx.x + i * THREADS, r, k);
        else unit_along_rows(threadIdx.x + i * THREADS, ROWS, r, k);
        store_unit(panel, ROWS + 4, along_k, r, k, units[i]);
    }
}

template <int TM, int DEPTH>
__device__ inline void tile(float* shared, const float* __restrict__ a,
                            const float* __restrict__ b, float* __restrict__ extra,
                            float* __restrict__ out, int m, int n, int k, bool a_along_k,
                            bool a_wide, bool b_along_k, bool b_wide, int epilogue, int row0,
                            int col0) {
    const int pitch_a = TM + 4, half = CHUNK * (pitch_a + LDB);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int lm = (lane >> 3) * 4, ln = (lane & 7) * 4;
    float sum[TM / 16][4][4];
#pragma unroll
    for (int g = 0; g < TM / 16; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[g][i][j] = 0.0f;

    // Column sums of b: by the first row of tiles, whose every row of lanes has the same columns.
    const bool sums_columns = epilogue == 4 && row0 == 0;
    float column[4] = {0.0f, 0.0f, 0.0f, 0.0f};

    const int chunks = k / CHUNK + (k % CHUNK != 0);
    Unit units_a[DEPTH][TM / 16], units_b[DEPTH][TN / 16];
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
        if (d < chunks) {
            fetch<TM>(units_a[d], a, a_along_k, a_wide, row0, d * CHUNK, m, k);
            fetch<TN>(units_b[d], b, b_along_k, b_wide, col0, d * CHUNK, n, k);
        }
    }
    for (int first = 0; first < chunks; first += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            const int c = first + d;
            if (c >= chunks) break;
            // Two halves in turn: one barrier a chunk, since a warp can be at most one chunk ahead.
            float* panel_a = shared + (c & 1) * half;
            float* panel_b = panel_a + CHUNK * pitch_a;
            stage<TM>(panel_a, a_along_k, units_a[d]);
            stage<TN>(panel_b, b_along_k, units_b[d]);
            __syncthreads();
            if (c + DEPTH < chunks) {
                fetch<TM>(units_a[d], a, a_along_k, a_wide, row0, (c + DEPTH) * CHUNK, m, k);
                fetch<TN>(units_b[d], b, b_along_k, b_wide, col0, (c + DEPTH) * CHUNK, n, k);
            }
#pragma unroll
            for (int kk = 0; kk < CHUNK / WARPS; ++kk) {
                const int at = warp * (CHUNK / WARPS) + kk;
                float4 fb = *reinterpret_cast<const float4*>(panel_b + at * LDB + ln);
                const float vb[4] = {fb.x, fb.y, fb.z, fb.w};
                if (sums_columns)
#pragma unroll
                    for (int j = 0; j < 4; ++j) column[j] += vb[j];
#pragma unroll
                for (int g = 0; g < TM / 16; ++g) {
                    float4 fa =
                        *reinterpret_cast<const float4*>(panel_a + at * pitch_a + g * 16 + lm);
                    const float va[4] = {fa.x, fa.y, fa.z, fa.w};
#pragma unroll
                    for (int i = 0; i < 4; ++i)
#pragma unroll
                        for (int j = 0; j < 4; ++j) sum[g][i][j] += va[i] * vb[j];
                }
            }
        }
    }

    __syncthreads();  // the panels' memory now holds the warps' partial sums
#pragma unroll
    for (int g = 0; g < TM / 16; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            *reinterpret_cast<float4*>(shared + warp * (TM * TN) + (g * 16 + lm + i) * TN + ln) =
                make_float4(sum[g][i][0], sum[g][i][1], sum[g][i][2], sum[g][i][3]);
    float* columns = shared + WARPS * TM * TN;
    if (sums_columns && lm == 0)
        *reinterpret_cast<float4*>(columns + warp * TN + ln) =
            make_float4(column[0], column[1], column[2], column[3]);
    __syncthreads();
    if (sums_columns && threadIdx.x < TN && col0 + (int)threadIdx.x < n) {
        float total = columns[threadIdx.x];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) total += columns[w * TN + threadIdx.x];
        extra[col0 + threadIdx.x] = total;
    }
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        const int row = row0 + e / TN, col = col0 + e % TN;
        if (row < m && col < n) {
            float total = shared[e];
#pragma unroll
            for (int w = 1; w < WARPS; ++w) total += shared[w * (TM * TN) + e];
            const long long at = (long long)row * n + col;
            if (epilogue == 1 || epilogue == 2) total += extra[col];
            if (epilogue == 2 && total < 0.0f) total = 0.0f;  // a NaN is not less: it stays
            if (epilogue == 3 && !(extra[at] > 0.0f)) total = 0.0f;
            out[at] = total;
        }
    }
    __syncthreads();  // before the next tile's panels overwrite the sums
}

__device__ inline bool can_load_wide(const float* pointer, int contiguous) {
    return contiguous % 4 == 0 && (reinterpret_cast<unsigned long long>(pointer) & 15) == 0;
}

// One block an SM: its registers hold the chunks on their way, which hide memory better than a
// second block would.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ extra,
     float* __restrict__ out, int m, int n, int k, int trans_a, int trans_b, int epilogue,
     int tile_m, int tiles_m, int tiles_n) {
    __shared__ __align__(16) float shared[2 * CHUNK * (32 + 4 + LDB)];
    const bool a_along_k = !trans_a, b_along_k = trans_b != 0;
    const bool a_wide = can_load_wide(a, a_along_k ? k : m);
    const bool b_wide = can_load_wide(b, b_along_k ? k : n);
    const long long tiles = (long long)tiles_m * tiles_n;
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int row0 = (int)(t / tiles_n) * tile_m, col0 = (int)(t % tiles_n) * TN;
        if (tile_m == 16)
            tile<16, 4>(shared, a, b, extra, out, m, n, k, a_along_k, a_wide, b_along_k, b_wide,
                     epilogue, row0, col0);
        else
            tile<32, 2>(shared, a, b, extra, out, m, n, k, a_along_k, a_wide, b_along_k, b_wide,
                     epilogue, row0, col0);
    }
}
