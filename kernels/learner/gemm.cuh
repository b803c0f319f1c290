// One tile of a float32 matrix multiply with an epilogue: what gemm.cu and gemm_group.cu run.
//
// A block computes a tile of TM x 32 outputs: a lane has a column of it. The block's eight warps
// share the k of each chunk between them (warp w takes eight of a chunk's 64), so that a small
// matrix, which has few tiles, still keeps eight warps a tile busy. The warps' partial sums are
// added at the end in the order 0, 1, ..., 7. That order depends on k alone: not on the tile, the
// grid or the alignment.
//
// At these sizes a block lives a few microseconds, and what bounds it is the number of instructions
// that its warps issue one after the other. So a lane reads its own column of b, all lanes read the
// same numbers of a (one access for the warp), a thread's places in the chunks are worked out once,
// and chunks come in asynchronously, STAGES of them at once. 64 x 256 over 256 takes 3.5 us in a
// graph on an H200; with four rows and four columns a lane, and registers between global and shared
// memory, it took 4.7.
#pragma once
#include "common/async_copy.cuh"

#define TN 32
#define CHUNK 64
#define WARPS 8
#define THREADS 256
#define PER_WARP (CHUNK / WARPS)

// Floats of a panel of `rows` x CHUNK: [row][k] where k is contiguous in memory, else [k][row].
// A [row][k] panel is padded so that neighbouring rows start in different banks.
template <int ROWS, bool ALONG_K>
struct Panel {
    static const int PITCH = ALONG_K ? CHUNK + 4 : ROWS;
    static const int SIZE = (ALONG_K ? ROWS : CHUNK) * PITCH;
};

// What a thread copies of a matrix [height rows, depth k]: up to UNITS times four elements of each
// chunk, at the same places of every chunk. Beyond `depth` it copies zeros; rows beyond `height` it
// leaves out, because what is computed from them is not written.
template <int ROWS, bool ALONG_K>
struct Reader {
    static const int UNITS = (ROWS * CHUNK / 4 + THREADS - 1) / THREADS;
    const float* from[UNITS];
    int to[UNITS], k[UNITS], rows[UNITS];  // rows: from here to the matrix's end, 0 for no unit
    long long step;

    __device__ Reader(const float* __restrict__ matrix, int row0, int height, int depth) {
        const int across = (ALONG_K ? CHUNK : ROWS) / 4;  // units along the contiguous side
        step = ALONG_K ? CHUNK : (long long)CHUNK * height;
#pragma unroll
        for (int i = 0; i < UNITS; ++i) {
            const int u = threadIdx.x + i * THREADS;
            const int major = u / across, minor = (u % across) * 4;
            const int r = row0 + (ALONG_K ? major : minor);
            k[i] = ALONG_K ? minor : major;
            rows[i] = u < ROWS * CHUNK / 4 && r < height ? height - r : 0;
            to[i] = major * Panel<ROWS, ALONG_K>::PITCH + minor;
            from[i] = matrix + (ALONG_K ? (long long)r * depth + k[i]
                                        : (long long)k[i] * height + r);
        }
    }

    // Starts the copy of the next chunk, of whose k's `left` are within the matrix. `wide`: sixteen
    // bytes at a time, which the matrix's alignment and its contiguous width must allow.
    __device__ void next(float* panel, int left, bool wide) {
#pragma unroll
        for (int i = 0; i < UNITS; ++i) {
            if (rows[i] > 0) {
                if (wide) {
                    copy_async<16>(panel + to[i], from[i], k[i] < left);
                } else {
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        if (ALONG_K || j < rows[i])
                            copy_async<4>(panel + to[i] + j, from[i] + j,
                                          k[i] + (ALONG_K ? j : 0) < left);
                }
                from[i] += step;
            }
        }
    }
};

// acc[r] += a[r][0..3] b[0..3], one k after the other.
template <int TM, bool A_ALONG_K>
__device__ inline void multiply_four(float (&acc)[TM], const float* panel_a, int at,
                                     const float (&vb)[4]) {
    const int pitch = Panel<TM, A_ALONG_K>::PITCH;
    if (A_ALONG_K) {
#pragma unroll
        for (int r = 0; r < TM; ++r) {
            const float4 va = *reinterpret_cast<const float4*>(panel_a + r * pitch + at);
            acc[r] += va.x * vb[0];
            acc[r] += va.y * vb[1];
            acc[r] += va.z * vb[2];
            acc[r] += va.w * vb[3];
        }
    } else {
#pragma unroll
        for (int q = 0; q < 4; ++q)
#pragma unroll
            for (int r = 0; r < TM; r += 4) {
                const float4 va =
                    *reinterpret_cast<const float4*>(panel_a + (at + q) * pitch + r);
                acc[r] += va.x * vb[q];
                acc[r + 1] += va.y * vb[q];
                acc[r + 2] += va.z * vb[q];
                acc[r + 3] += va.w * vb[q];
            }
    }
}

template <int TM, int STAGES, bool A_ALONG_K, bool B_ALONG_K>
__device__ inline void tile(float* shared, const float* __restrict__ a,
                            const float* __restrict__ b, float* __restrict__ extra,
                            float* __restrict__ out, int m, int n, int k, bool a_wide, bool b_wide,
                            int epilogue, int row0, int col0) {
    typedef Panel<TM, A_ALONG_K> PanelA;
    typedef Panel<TN, B_ALONG_K> PanelB;
    const int stage_size = PanelA::SIZE + PanelB::SIZE;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int chunks = k / CHUNK + (k % CHUNK != 0);
    Reader<TM, A_ALONG_K> read_a(a, row0, m, k);
    Reader<TN, B_ALONG_K> read_b(b, col0, n, k);
    // What the epilogue reads, asked for before the work: a thread writes every eighth row.
    const int col = col0 + lane;
    float other[TM / WARPS];
#pragma unroll
    for (int i = 0; i < TM / WARPS; ++i) {
        const int row = row0 + warp + i * WARPS;
        other[i] = 0.0f;
        if (col < n && (epilogue == 1 || epilogue == 2)) other[i] = extra[col];
        if (col < n && row < m && epilogue == 3) other[i] = extra[(long long)row * n + col];
    }

    float acc[TM] = {};
    const bool sums_columns = epilogue == 4 && row0 == 0;  // by the first row of tiles
    float column = 0.0f;
    int slot = 0;
#pragma unroll 1
    for (int c = -STAGES; c < chunks; ++c) {  // from the copies that come before any work
        float* panel_a = shared + slot * stage_size;
        float* panel_b = panel_a + PanelA::SIZE;
        if (c >= 0) {
            wait_copies<STAGES - 1>();
            __syncthreads();
#pragma unroll
            for (int kk = 0; kk < PER_WARP; kk += 4) {
                const int at = warp * PER_WARP + kk;
                float vb[4];
                if (B_ALONG_K) {
                    const float4 f =
                        *reinterpret_cast<const float4*>(panel_b + lane * PanelB::PITCH + at);
                    vb[0] = f.x, vb[1] = f.y, vb[2] = f.z, vb[3] = f.w;
                } else {
#pragma unroll
                    for (int q = 0; q < 4; ++q) vb[q] = panel_b[(at + q) * PanelB::PITCH + lane];
                }
                if (sums_columns) {
#pragma unroll
                    for (int q = 0; q < 4; ++q) column += vb[q];
                }
                multiply_four<TM, A_ALONG_K>(acc, panel_a, at, vb);
            }
        }
        const int next = c + STAGES;
        if (next < chunks) {
            if (c >= 0) __syncthreads();  // everybody has read what the next chunk overwrites
            read_a.next(panel_a, k - next * CHUNK, a_wide);
            read_b.next(panel_b, k - next * CHUNK, b_wide);
        }
        commit_copies();
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }

    wait_copies<0>();
    __syncthreads();  // the panels' memory now holds the warps' partial sums
#pragma unroll
    for (int r = 0; r < TM; ++r) shared[(warp * TM + r) * TN + lane] = acc[r];
    float* columns = shared + WARPS * TM * TN;
    if (sums_columns) columns[warp * TN + lane] = column;
    __syncthreads();
    if (sums_columns && warp == 0 && col < n) {
        float total = columns[lane];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) total += columns[w * TN + lane];
        extra[col] = total;
    }
#pragma unroll
    for (int i = 0; i < TM / WARPS; ++i) {
        const int r = warp + i * WARPS;
        if (row0 + r < m && col < n) {
            float total = shared[r * TN + lane];
#pragma unroll
            for (int w = 1; w < WARPS; ++w) total += shared[(w * TM + r) * TN + lane];
            if (epilogue == 1 || epilogue == 2) total += other[i];
            if (epilogue == 2 && total < 0.0f) total = 0.0f;  // a NaN is not less: it stays
            if (epilogue == 3 && !(other[i] > 0.0f)) total = 0.0f;
            out[(long long)(row0 + r) * n + col] = total;
        }
    }
    __syncthreads();  // before the next tile's panels overwrite the sums
}

__device__ inline bool can_load_wide(const float* pointer, int contiguous) {
    return contiguous % 4 == 0 && (reinterpret_cast<unsigned long long>(pointer) & 15) == 0;
}

// Floats of shared memory that a tile needs: four stages of 8 + 32 rows, three of 16 + 32, or two of
// 32 + 32, however their panels lie.
#define TILE_FLOATS (4 * (8 + TN) * (CHUNK + 4))

// One product's arguments, as gemm.py states them.
struct Product {
    const float* a;
    const float* b;
    float* extra;
    float* out;
    int m, n, k, trans_a, trans_b, epilogue, tile_m;
};

// Tile `t` of the product's, counted along its rows of tiles, `tiles_n` in each. By whole blocks.
__device__ inline void multiply_tile(float* shared, const Product& p, long long t, int tiles_n) {
    const bool a_wide = can_load_wide(p.a, p.trans_a ? p.m : p.k);
    const bool b_wide = can_load_wide(p.b, p.trans_b ? p.k : p.n);
    const int row0 = (int)(t / tiles_n) * p.tile_m, col0 = (int)(t % tiles_n) * TN;
#define TILE(TM, STAGES, A_ALONG_K, B_ALONG_K)                                                    \
    tile<TM, STAGES, A_ALONG_K, B_ALONG_K>(shared, p.a, p.b, p.extra, p.out, p.m, p.n, p.k,       \
                                           a_wide, b_wide, p.epilogue, row0, col0)
    if (p.tile_m == 16) {
        if (!p.trans_a && !p.trans_b) TILE(16, 3, true, false);
        else if (!p.trans_a) TILE(16, 3, true, true);
        else if (!p.trans_b) TILE(16, 3, false, false);
        else TILE(16, 3, false, true);
    } else if (p.tile_m == 8) {
        if (!p.trans_a && !p.trans_b) TILE(8, 4, true, false);
        else if (!p.trans_a) TILE(8, 4, true, true);
        else if (!p.trans_b) TILE(8, 4, false, false);
        else TILE(8, 4, false, true);
    } else {
        if (!p.trans_a && !p.trans_b) TILE(32, 2, true, false);
        else if (!p.trans_a) TILE(32, 2, true, true);
        else if (!p.trans_b) TILE(32, 2, false, false);
        else TILE(32, 2, false, true);
    }
#undef TILE
}
