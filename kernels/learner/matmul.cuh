// Float32 matrix products in tiles, with an epilogue: what matmul_float32.cu, matmul_tf32.cu and
// matmul_tf32x3.cu run, each with a PRECISION of its own (matmul.py says what they mean).
//
// A block of eight warps computes a tile of BM x BN outputs. The warps stand in a grid of WM x WN
// over the tile, and WK warps share the k of each chunk where a tile is small. Chunks of DEPTH k's
// come in asynchronously, STAGES of them in flight. Where tiles are few and sums long, the blocks of
// a cluster share the chunks of a tile, a run of them each. At the end the warps' sums meet in
// shared memory, are added in the order of blocks and warps, go through the epilogue, and leave in
// rows. The order of every sum depends on its product's sizes, tile and split alone: not on the
// grid, nor on the other products.
#pragma once
#include "common/async_copy.cuh"
#include "common/cluster.cuh"

#define FLOAT32 0
#define TF32 1
#define TF32X3 2

#define THREADS 256

// A panel of `ROWS` x DEPTH in shared memory: [row][k] where k is contiguous in memory, else
// [k][row]. Padded so that the four k's and eight rows that a warp reads at once lie in 32 banks.
template <int ROWS, int DEPTH, bool ALONG_K>
struct Panel {
    static const int PITCH = ALONG_K ? DEPTH + 4 : ROWS + 8;
    static const int SIZE = (ALONG_K ? ROWS : DEPTH) * PITCH;
    __device__ static inline int at(int row, int k) {
        return ALONG_K ? row * PITCH + k : k * PITCH + row;
    }
};

// What a thread copies of a matrix [height rows, depth k]: four elements at a time, every STEP-th
// line of each chunk. Outside the matrix it copies zeros.
template <int ROWS, int DEPTH, bool ALONG_K>
struct Reader {
    typedef Panel<ROWS, DEPTH, ALONG_K> P;
    static const int ACROSS = (ALONG_K ? DEPTH : ROWS) / 4;  // units along the contiguous side
    static const int LINES = ALONG_K ? ROWS : DEPTH;
    static const int STEP = THREADS / ACROSS;
    static const int UNITS = (LINES + STEP - 1) / STEP;
    const float* matrix;
    const float* from;  // of the first unit, in the next chunk
    long long pitch;    // elements from one line of the matrix to the next
    int line, within, rows;

    __device__ inline Reader(const float* __restrict__ m, int row0, int k0, int height, int depth) {
        matrix = m;
        line = threadIdx.x / ACROSS;
        within = threadIdx.x % ACROSS * 4;
        rows = height - row0;
        pitch = ALONG_K ? depth : height;
        from = m + (ALONG_K ? (row0 + line) * pitch + k0 + within
                            : (k0 + line) * pitch + row0 + within);
    }

    // Four bytes at a time, `AT_ONCE` of them.
    template <int AT_ONCE>
    __device__ inline void narrow(float* panel, int lines, int across) {
#pragma unroll AT_ONCE
        for (int e = 0; e < 4 * UNITS; ++e) {
            const int l = line + e / 4 * STEP, w = within + e % 4;
            if (l >= LINES) break;
            const bool here = l < lines && w < across;
            copy_async<4>(panel + l * P::PITCH + w,
                          here ? from + e / 4 * STEP * pitch + e % 4 : matrix, here);
        }
    }

    // Starts the copy of the next chunk, of whose k's `left` are within the matrix. `wide`: sixteen
    // bytes at a time, which the matrix's alignment and its contiguous width must allow.
    __device__ inline void next(float* panel, int left, bool wide) {
        const int across = ALONG_K ? left : rows, lines = ALONG_K ? rows : left;
        if (wide && LINES % STEP == 0 && rows >= ROWS && left >= DEPTH) {  // all of it is there
            float* to = panel + line * P::PITCH + within;
            const float* at = from;
#pragma unroll
            for (int i = 0; i < UNITS; ++i, at += STEP * pitch)
                copy_async<16>(to + i * STEP * P::PITCH, at, true);
        } else if (wide) {
#pragma unroll 1
            for (int i = 0; i < UNITS; ++i) {
                const int l = line + i * STEP;
                if (LINES % STEP != 0 && l >= LINES) break;
                const bool here = l < lines && within < across;
                copy_async<16>(panel + l * P::PITCH + within, here ? from + i * STEP * pitch : matrix,
                               here);
            }
        } else if (ROWS <= 32) {
            narrow<4 * UNITS>(panel, lines, across);
        } else {  // a matrix that is not wide is seldom large: less code for it
            narrow<1>(panel, lines, across);
        }
        from += ALONG_K ? DEPTH : DEPTH * pitch;
    }
};

// The sums of a warp: M x N outputs, `COUNT` of them a lane, over some k's of a chunk at a time.
#if PRECISION == FLOAT32

// A lane has (M / 8) x (N / 4) outputs, and takes four k's of its rows and columns at once.
template <int M, int N, bool A_ALONG_K, bool B_ALONG_K>
struct Sums {
    static const int TM = M / 8, TN = N / 4, COUNT = TM * TN;
    static const int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;
    static const int BESIDE = !B_ALONG_K && VN == 4 ? 4 : 1;  // sums that are side by side
    float sum[COUNT];

    __device__ static inline int row_of(int i) {
        const int r = (threadIdx.x & 31) >> 2, t = i / TN;
        return A_ALONG_K ? t * 8 + r : t / VM * (8 * VM) + r * VM + t % VM;
    }
    __device__ static inline int col_of(int i) {
        const int c = threadIdx.x & 3, t = i % TN;
        return B_ALONG_K ? t * 4 + c : t / VN * (4 * VN) + c * VN + t % VN;
    }

    // Four k's from `k` on of `COUNT` rows, `lane` of `LANES`; out[row][k].
    template <int TILES, int V, int LANES, bool ALONG_K, int PITCH>
    __device__ static inline void load(float (&out)[TILES][4], const float* panel, int lane, int k) {
        if (ALONG_K) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                const float4 f = *reinterpret_cast<const float4*>(
                    panel + (t * LANES + lane) * PITCH + k);
                out[t][0] = f.x, out[t][1] = f.y, out[t][2] = f.z, out[t][3] = f.w;
            }
        } else {
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
                for (int t = 0; t < TILES; t += V) {
                    const float* from = panel + (k + q) * PITCH + t * LANES + lane * V;
                    if (V == 4) {
                        const float4 f = *reinterpret_cast<const float4*>(from);
                        out[t][q] = f.x, out[t + 1][q] = f.y;
                        out[t + 2][q] = f.z, out[t + 3][q] = f.w;
                    } else {
#pragma unroll
                        for (int v = 0; v < V; ++v) out[t + v][q] = from[v];
                    }
                }
        }
    }

    __device__ inline void begin_chunk() {}
    __device__ inline void end_chunk() {}

    template <int PITCH_A, int PITCH_B>
    __device__ inline void eight(const float* panel_a, const float* panel_b, int k) {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int half = 0; half < 8; half += 4) {
            float a[TM][4], b[TN][4];
            load<TM, VM, 8, A_ALONG_K, PITCH_A>(a, panel_a, lane >> 2, k + half);
            load<TN, VN, 4, B_ALONG_K, PITCH_B>(b, panel_b, lane & 3, k + half);
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
                for (int i = 0; i < TM; ++i)
#pragma unroll
                    for (int j = 0; j < TN; ++j) sum[i * TN + j] += a[i][q] * b[j][q];
        }
    }
};

#else

// sum += a b on the tensor cores, 16 x 8 outputs over 8 k's.
__device__ inline void multiply_add(float* sum, const unsigned int (&a)[4],
                                    const unsigned int (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
        " {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A factor as TF32 numbers; with TF32X3 also what they leave of it.
template <int COUNT>
struct Factor {
    unsigned int high[COUNT];
#if PRECISION == TF32X3
    unsigned int low[COUNT];
#endif
    __device__ inline void set(int i, float x) {
#if PRECISION == TF32X3
        high[i] = __float_as_uint(x) & 0xffffe000u;
        // The tensor cores leave out the last 13 bits: half of what they are worth rounds.
        low[i] = __float_as_uint(x - __uint_as_float(high[i])) + 0x1000u;
#else
        // They truncate, so that about half of what they leave out is added first: by one
        // instruction that keeps NaN and infinity, which adding to the bits would not.
        high[i] = __float_as_uint(fmaf(x, 0x1.555p-12f, x));
#endif
    }
};

template <int M, int N, bool A_ALONG_K, bool B_ALONG_K>
struct Sums {
    static const int TM = M / 16, TN = N / 8, COUNT = TM * TN * 4, BESIDE = 1;
    float sum[COUNT];
#if PRECISION == TF32X3
    float part[COUNT];  // of a chunk: the tensor cores truncate when they add, so sums stay short
#endif

    __device__ static inline int row_of(int i) {
        return i / (4 * TN) * 16 + ((threadIdx.x & 31) >> 2) + (i & 2) * 4;
    }
    __device__ static inline int col_of(int i) {
        return i / 4 % TN * 8 + (threadIdx.x & 3) * 2 + (i & 1);
    }

    __device__ inline void begin_chunk() {
#if PRECISION == TF32X3
#pragma unroll
        for (int i = 0; i < COUNT; ++i) part[i] = 0.0f;
#endif
    }
    __device__ inline void end_chunk() {
#if PRECISION == TF32X3
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum[i] += part[i];
#endif
    }

    template <int PITCH_A, int PITCH_B>
    __device__ inline void eight(const float* panel_a, const float* panel_b, int k) {
        const int r = (threadIdx.x & 31) >> 2, c = threadIdx.x & 3;
        const int step_a = A_ALONG_K ? 1 : PITCH_A, row_a = A_ALONG_K ? PITCH_A : 1;
        const int step_b = B_ALONG_K ? 1 : PITCH_B, row_b = B_ALONG_K ? PITCH_B : 1;
        const float* from_a = panel_a + r * row_a + (k + c) * step_a;
        const float* from_b = panel_b + r * row_b + (k + c) * step_b;
        Factor<4> a[TM];
        Factor<2> b[TN];
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                a[i].set(e, from_a[(i * 16 + (e & 1) * 8) * row_a + (e >> 1) * 4 * step_a]);
#pragma unroll
        for (int j = 0; j < TN; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) b[j].set(e, from_b[j * 8 * row_b + e * 4 * step_b]);
#if PRECISION == TF32X3
        // The small terms first.
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
                multiply_add(part + (i * TN + j) * 4, a[i].low, b[j].high);
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
                multiply_add(part + (i * TN + j) * 4, a[i].high, b[j].low);
#endif
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
#if PRECISION == TF32X3
                multiply_add(part + (i * TN + j) * 4, a[i].high, b[j].high);
#else
                multiply_add(sum + (i * TN + j) * 4, a[i].high, b[j].high);
#endif
    }
};

#endif

// From one row of a tile's sums in shared memory to the next, of `cols` sums each: so that neither who
// writes rows nor who writes columns meets many others in a bank.
__device__ constexpr int sums_pitch(int cols) { return cols + 4; }

// Threads among which the k's of a column of a tile are shared where columns are summed.
__device__ constexpr int column_shares(int cols) { return THREADS / cols; }

// One product's arguments, as matmul.py states them.
struct Product {
    const float* a;
    const float* b;
    float* extra;
    float* out;
    int m, n, k;
    int form;  // one bit each for the transposes, three each for the epilogue and the tile, the split

    __device__ inline int trans_a() const { return form & 1; }
    __device__ inline int trans_b() const { return form >> 1 & 1; }
    __device__ inline int epilogue() const { return form >> 2 & 7; }
    __device__ inline int tile() const { return form >> 5 & 7; }
    __device__ inline int split() const { return form >> 8; }
};

__device__ inline bool is_wide(const float* pointer, int contiguous) {
    return contiguous % 4 == 0 && (reinterpret_cast<unsigned long long>(pointer) & 15) == 0;
}

__device__ inline float finish(float total, float other, int epilogue) {
    if (epilogue == 1 || epilogue == 2) total += other;
    if (epilogue == 2 && total < 0.0f) total = 0.0f;  // a NaN is not less: it stays
    if (epilogue == 3 && !(other > 0.0f)) total = 0.0f;
    return total;
}

template <int BM, int BN, int WM, int WN, int WK, int DEPTH, int STAGES, bool A_ALONG_K,
          bool B_ALONG_K>
__device__ __forceinline__ void tile(float* shared, const Product& p, int row0, int col0) {
    typedef Panel<BM, DEPTH, A_ALONG_K> PanelA;
    typedef Panel<BN, DEPTH, B_ALONG_K> PanelB;
    typedef Sums<BM / WM, BN / WN, A_ALONG_K, B_ALONG_K> WarpSums;
    const int stage_size = PanelA::SIZE + PanelB::SIZE;
    const int warp = threadIdx.x >> 5;
    const int wk = warp % WK, wn = warp / WK % WN, wm = warp / (WK * WN);
    // The chunks of this block: its share, of the cluster's blocks that are at this tile.
    const int all_chunks = p.k / DEPTH + (p.k % DEPTH != 0);
    const int part = cluster_rank() % p.split();
    const int run = (all_chunks + p.split() - 1) / p.split();
    const int k0 = min(part * run, all_chunks) * DEPTH;
    const int chunks = min(run, all_chunks - min(part * run, all_chunks));
    const bool a_wide = is_wide(p.a, A_ALONG_K ? p.k : p.m);
    const bool b_wide = is_wide(p.b, B_ALONG_K ? p.k : p.n);
    Reader<BM, DEPTH, A_ALONG_K> read_a(p.a, row0, k0, p.m, p.k);
    Reader<BN, DEPTH, B_ALONG_K> read_b(p.b, col0, k0, p.n, p.k);

    WarpSums sums;
#pragma unroll
    for (int i = 0; i < WarpSums::COUNT; ++i) sums.sum[i] = 0.0f;
    // The first row of tiles also sums b's columns: a thread has some k's of one column.
    const bool sums_columns = p.epilogue() == 4 && row0 == 0;
    const int column = threadIdx.x % BN, share = threadIdx.x / BN;
    const int SHARES = column_shares(BN);
    float column_sum = 0.0f;

    int slot = 0;
#pragma unroll 1
    for (int c = 1 - STAGES; c < chunks; ++c) {  // from the copies that come before any work
        if (c >= 0) {
            wait_copies<STAGES - 2>();
            __syncthreads();  // and everybody is done with what the next copy overwrites
        }
        const int next = c + STAGES - 1;
        if (next < chunks) {
            float* panel = shared + next % STAGES * stage_size;
            read_a.next(panel, p.k - k0 - next * DEPTH, a_wide);
            read_b.next(panel + PanelA::SIZE, p.k - k0 - next * DEPTH, b_wide);
        }
        commit_copies();
        if (c >= 0) {
            const float* panel_a = shared + slot * stage_size;
            const float* panel_b = panel_a + PanelA::SIZE;
            if (sums_columns && share < SHARES) {
#pragma unroll 4
                for (int k = share; k < DEPTH; k += SHARES)
                    column_sum += panel_b[PanelB::at(column, k)];
            }
            sums.begin_chunk();
#pragma unroll
            for (int s = 0; s < DEPTH / WK; s += 8)
                sums.template eight<PanelA::PITCH, PanelB::PITCH>(
                    panel_a + PanelA::at(wm * (BM / WM), 0), panel_b + PanelB::at(wn * (BN / WN), 0),
                    wk * (DEPTH / WK) + s);
            sums.end_chunk();
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
    }

    wait_copies<0>();
    __syncthreads();  // the panels' memory now holds the warps' sums
    const int pitch = sums_pitch(BN);
    float* mine = shared + wk * BM * pitch + wm * (BM / WM) * pitch + wn * (BN / WN);
#pragma unroll
    for (int i = 0; i < WarpSums::COUNT; i += WarpSums::BESIDE) {
        float* to = mine + WarpSums::row_of(i) * pitch + WarpSums::col_of(i);
        if (WarpSums::BESIDE == 4)
            *reinterpret_cast<float4*>(to) = make_float4(sums.sum[i], sums.sum[i + 1],
                                                         sums.sum[i + 2], sums.sum[i + 3]);
        else
            to[0] = sums.sum[i];
    }
    if (sums_columns && share < SHARES)
        shared[WK * BM * pitch + share * BN + column] = column_sum;
}

#if PRECISION != FLOAT32 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WARPGROUPS 1
#include "learner/matmul_warpgroup.cuh"
#else
#define WARPGROUPS 0
#endif

// What `tile` left in the shared memories of a tile's blocks, added up and on its way out: WK times
// `bm` x `bn` sums, and of b's columns `shares` each. By all blocks of the tile, a share each.
__device__ __forceinline__ void finish_tile(float* shared, const Product& p, int row0, int col0, int bm,
                                   int bn, int wk, int shares) {
    const int part = cluster_rank() % p.split(), first_rank = cluster_rank() - part;
    const int pitch = sums_pitch(bn);
    const int shift = bn == 8 ? 1 : bn == 32 ? 3 : bn == 64 ? 4 : 5;  // of fours in a row
    if (p.split() > 1) cluster_barrier();
    else __syncthreads();
    const int column = threadIdx.x;
    if (p.epilogue() == 4 && row0 == 0 && part == 0 && column < bn && col0 + column < p.n) {
        float total = 0.0f;
#pragma unroll 1
        for (int b = 0; b < p.split(); ++b) {
            const unsigned int from =
                cluster_address(shared + wk * bm * pitch + column, first_rank + b);
#pragma unroll 4
            for (int s = 0; s < shares; ++s) total += cluster_load(from + s * bn * 4);
        }
        p.extra[col0 + column] = total;
    }
    const bool wide = is_wide(p.out, p.n) && (p.epilogue() != 3 || is_wide(p.extra, p.n));
    // A thread has four columns, and every STEP-th row of its block's share.
    const int c = (threadIdx.x & (1 << shift) - 1) * 4, col = col0 + c, step = THREADS >> shift;
    float bias[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (p.epilogue() == 1 || p.epilogue() == 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (col + j < p.n) bias[j] = p.extra[col + j];
    }
    if (p.split() == 1 && wk == 1 && wide) {
        if (col < p.n) {
#pragma unroll 4
            for (int r = threadIdx.x >> shift; r < bm; r += step) {
                const int row = row0 + r;
                if (row >= p.m) break;
                const long long at = (long long)row * p.n + col;
                float4 other = make_float4(bias[0], bias[1], bias[2], bias[3]);
                if (p.epilogue() == 3) other = *reinterpret_cast<const float4*>(p.extra + at);
                const float4 f = *reinterpret_cast<const float4*>(shared + r * pitch + c);
                *reinterpret_cast<float4*>(p.out + at) = make_float4(
                    finish(f.x, other.x, p.epilogue()), finish(f.y, other.y, p.epilogue()),
                    finish(f.z, other.z, p.epilogue()), finish(f.w, other.w, p.epilogue()));
            }
        }
    } else {
#pragma unroll 1
        for (int r = part * step + (threadIdx.x >> shift); r < bm; r += p.split() * step) {
            const int row = row0 + r;
            if (row >= p.m || col >= p.n) break;
            const long long at = (long long)row * p.n + col;
            float other[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                other[j] = p.epilogue() == 3 && col + j < p.n ? p.extra[at + j] : bias[j];
            float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            const float* mine = shared + r * pitch + c;
#pragma unroll 1
            for (int b = 0; b < p.split(); ++b) {
                const unsigned int from = p.split() > 1 ? cluster_address(mine, first_rank + b) : 0;
#pragma unroll 1
                for (int w = 0; w < wk; ++w) {
                    const int at = w * bm * pitch;
                    const float4 f = p.split() > 1 ? cluster_load4(from + at * 4)
                                                 : *reinterpret_cast<const float4*>(mine + at);
                    total[0] += f.x, total[1] += f.y, total[2] += f.z, total[3] += f.w;
                }
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) total[j] = finish(total[j], other[j], p.epilogue());
            if (wide) {
                *reinterpret_cast<float4*>(p.out + at) =
                    make_float4(total[0], total[1], total[2], total[3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (col + j < p.n) p.out[at + j] = total[j];
            }
        }
    }
    if (p.split() > 1) cluster_barrier();  // before the sums are overwritten, or the block is gone
    else __syncthreads();
}

__device__ inline int ceil_of(int x, int y) { return x / y + (x % y != 0); }

// Rows and columns of the tiles, in the order of matmul.py's TILES.
__device__ inline int tile_rows(int t) { return t == 0 ? 16 : t == 1 ? 32 : t == 2 || t == 5 ? 64 : 128; }
__device__ inline int tile_cols(int t) { return t == 0 || t == 5 ? 8 : t == 1 ? 32 : t < 4 ? 64 : 128; }

// Tile `t` of the product's, counted along its rows of tiles. By whole clusters of blocks, of which
// `p.split()` are at one tile.
__device__ __forceinline__ void multiply_tile(float* shared, const Product& p, int t) {
    const int across = ceil_of(p.n, tile_cols(p.tile()));
    const int row0 = t / across * tile_rows(p.tile()), col0 = t % across * tile_cols(p.tile());
    int warps_a_sum = 1;  // that share a chunk's k's
#define TILE(BM, BN, WM, WN, WK, DEPTH, STAGES)                                          \
    warps_a_sum = WK;                                                                    \
    if (p.trans_a())                                                                       \
        tile<BM, BN, WM, WN, WK, DEPTH, STAGES, false, false>(shared, p, row0, col0);    \
    else if (p.trans_b())                                                                  \
        tile<BM, BN, WM, WN, WK, DEPTH, STAGES, true, true>(shared, p, row0, col0);      \
    else                                                                                 \
        tile<BM, BN, WM, WN, WK, DEPTH, STAGES, true, false>(shared, p, row0, col0);
#if WARPGROUPS
    __shared__ unsigned long long barriers[2 * STAGED];
#define LARGE_TILE(BM, BN, WM, WN, WK)                                                     \
    warps_a_sum = WK;                                                                      \
    if (p.trans_a())                                                                       \
        warpgroup_tile<BM, BN, WM, WN, WK, false, false>(shared, barriers, p, row0, col0); \
    else if (p.trans_b())                                                                  \
        warpgroup_tile<BM, BN, WM, WN, WK, true, true>(shared, barriers, p, row0, col0);   \
    else                                                                                   \
        warpgroup_tile<BM, BN, WM, WN, WK, true, false>(shared, barriers, p, row0, col0);
#endif
    if (p.tile() == 0) {
        TILE(16, 8, 1, 1, 8, 64, 6)
    } else if (p.tile() == 1) {
        TILE(32, 32, 1, 1, 8, 64, 4)
    } else if (p.tile() == 5) {
        TILE(64, 8, 4, 1, 2, 64, 4)
#if WARPGROUPS
    } else if (p.tile() == 2) {
        LARGE_TILE(64, 64, 1, 1, 2)
    } else if (p.tile() == 3) {
        LARGE_TILE(128, 64, 2, 1, 1)
    } else {
        LARGE_TILE(128, 128, 1, 2, 1)
    }
#undef LARGE_TILE
#else
    } else if (p.tile() == 2) {
        TILE(64, 64, 2, 2, 2, 32, 4)
    } else if (p.tile() == 3) {
        TILE(128, 64, 2, 2, 2, 32, 3)
    } else {
        TILE(128, 128, 2, 4, 1, 32, 3)
    }
#endif
#undef TILE
    const int bn = tile_cols(p.tile());
    finish_tile(shared, p, row0, col0, tile_rows(p.tile()), bn, warps_a_sum, column_shares(bn));
}

__device__ inline Product product(const float* a, const float* b, float* extra, float* out, int m,
                                  int n, int k, int form) {
    return Product{a, b, extra, out, m, n, k, form};
}

// Turns that clusters of `cluster` blocks take at the product: in each, cluster / split tiles.
__device__ inline int turns_of(const Product& p, int cluster) {
    if (p.m <= 0) return 0;
    const int tiles = ceil_of(p.m, tile_rows(p.tile())) * ceil_of(p.n, tile_cols(p.tile()));
    return ceil_of(tiles, cluster / p.split());
}

// Up to four products, one after another in the order of the members, a turn a cluster.
__device__ __forceinline__ void multiply_products(float* shared, const Product& p0, const Product& p1,
                                         const Product& p2, const Product& p3, int turns) {
#if PRECISION != FLOAT32 && __CUDA_ARCH__ < 800
    __trap();  // no tensor cores for these numbers: the device asks for float32 there
#else
    const int cluster = cluster_size(), clusters = gridDim.x / cluster;
    for (int t = blockIdx.x / cluster; t < turns; t += clusters) {
        // The member is the cluster's: its arguments are chosen before the tile's code, which is
        // there once.
        int at = t;
        Product p = p0;
        if (at >= turns_of(p, cluster)) {
            at -= turns_of(p, cluster);
            p = p1;
            if (at >= turns_of(p, cluster)) {
                at -= turns_of(p, cluster);
                p = p2;
                if (at >= turns_of(p, cluster)) {
                    at -= turns_of(p, cluster);
                    p = p3;
                    if (at >= turns_of(p, cluster)) return;  // more turns than the products have
                }
            }
        }
        const int beside = cluster / p.split();
        at = at * beside + cluster_rank() / p.split();
        // Blocks that are at one tile have one `at`, so that all or none of them skip it.
        if (at < ceil_of(p.m, tile_rows(p.tile())) * ceil_of(p.n, tile_cols(p.tile())))
            multiply_tile(shared, p, at);
        else if (p.split() > 1) {
            cluster_barrier();
            cluster_barrier();
        }
    }
#endif
}
