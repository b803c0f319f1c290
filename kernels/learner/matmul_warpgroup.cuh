// A tile of matmul.cuh's by warpgroups, on Hopper's tensor cores. Two warpgroups of four warps share
// it: its columns (128 of them), its rows, or the k's of a chunk.
//
// The tensor cores want the k's of a factor in shared memory side by side, and only one factor need
// be there. So the output is computed transposed: b, whose columns are the tile's, goes through
// registers and may lie in any order; a, whose rows are the tile's, is put into shared memory as
// they want it, as TF32 numbers, on its way from global memory.
#pragma once
#include "learner/warpgroup.cuh"

// The next chunk of a [height rows, depth k] for a tile of ROWS: on its way, then in shared memory.
// A thread has four elements that are contiguous in memory, ROWS / 32 times.
template <int ROWS, bool ALONG_K>
struct Staged {
    static const int UNITS = ROWS / 32;
    float4 held[UNITS];
    const float* from;
    long long step, chunk;  // elements from one of a thread's units, or chunks, to the next
    int row, unit, rows;
    bool wide, all_there;

    __device__ inline Staged(const float* __restrict__ a, int row0, int k0, int height, int depth) {
        const long long pitch = ALONG_K ? depth : height;
        row = ALONG_K ? threadIdx.x >> 3 : (threadIdx.x >> 5) * (ROWS / 8);
        unit = threadIdx.x & (ALONG_K ? 7 : 31);  // of k: four of them, or one
        rows = height - row0;
        step = ALONG_K ? 32 * pitch : 4;
        chunk = ALONG_K ? 32 : 32 * pitch;
        from = a + (ALONG_K ? (row0 + row) * pitch + k0 + unit * 4
                            : (k0 + unit) * pitch + row0 + row);
        wide = is_wide(a, pitch), all_there = false;
        // Registers that are not set on every path are taken for in use by all code before: by all
        // the other tiles' too.
#pragma unroll
        for (int i = 0; i < UNITS; ++i) held[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }

    // Starts to read the next chunk, of whose k's `left` are within the matrix: what `put` puts next.
    __device__ __forceinline__ void next(int left) {
        all_there = wide && rows >= ROWS && left >= 32;
        if (all_there) {
            const float* at = from;
#pragma unroll
            for (int i = 0; i < UNITS; ++i, at += step)
                held[i] = __ldg(reinterpret_cast<const float4*>(at));
        }
    }

    // Puts the chunk into a panel: its TF32 numbers, and behind those what they leave. What is not
    // all within the matrix is read only now: seldom, and so with little code.
    __device__ __forceinline__ void put(float* panel, int left) {
        if (all_there) {
#pragma unroll
            for (int i = 0; i < UNITS; ++i) put_unit(panel, i, held[i]);
        } else {
#pragma unroll 1
            for (int i = 0; i < UNITS; ++i) {
                const int r = row + i * (ALONG_K ? 32 : 4);
                const int here = ALONG_K ? (r < rows ? left - unit * 4 : 0)
                                         : (unit < left ? rows - r : 0);  // of the four elements
                const float* at = from + i * step;
                float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (wide) {
                    if (here > 0) x = __ldg(reinterpret_cast<const float4*>(at));
                } else {
                    if (here > 0) x.x = __ldg(at);
                    if (here > 1) x.y = __ldg(at + 1);
                    if (here > 2) x.z = __ldg(at + 2);
                    if (here > 3) x.w = __ldg(at + 3);
                }
                put_unit(panel, i, x);
            }
        }
    }

    __device__ __forceinline__ void advance() { from += chunk; }

    __device__ __forceinline__ void put_unit(float* panel, int i, const float4& x) const {
        const int r = row + i * (ALONG_K ? 32 : 4);
        Factor<4> f;
        f.set(0, x.x), f.set(1, x.y), f.set(2, x.z), f.set(3, x.w);
        put_numbers(panel, r, f.high);
#if PRECISION == TF32X3
        put_numbers(panel + ROWS * 32, r, f.low);
#endif
    }

    __device__ __forceinline__ void put_numbers(float* panel, int r,
                                                const unsigned int (&x)[4]) const {
        if (ALONG_K) {
            *reinterpret_cast<uint4*>(panel + swizzled(r, unit)) =
                make_uint4(x[0], x[1], x[2], x[3]);
        } else {  // a lane has a k of its own, so that a warp fills rows
#pragma unroll
            for (int e = 0; e < 4; ++e)
                panel[swizzled(r + e, unit >> 2) + (unit & 3)] = __uint_as_float(x[e]);
        }
    }
};

// What a warp's share of STEPS products wants of b, raw: rows from `row` and k's from `k` on.
template <int STEPS, int ROWS, bool ALONG_K>
__device__ __forceinline__ void load_fragments(float (&raw)[STEPS * 4], const float* panel, int row,
                                               int k) {
    typedef Panel<ROWS, 32, ALONG_K> P;
    const float* from = panel + P::at(row + (threadIdx.x >> 2 & 7), k + (threadIdx.x & 3));
#pragma unroll
    for (int i = 0; i < STEPS * 4; ++i)
        raw[i] = from[P::at((i & 1) * 8, i / 4 * 8 + (i >> 1 & 1) * 4)];
}

// The sum of a share of a column's k's in a panel of b.
template <int COLS, bool ALONG_K>
__device__ __forceinline__ float sum_column(const float* panel) {
    const int column = threadIdx.x % COLS;
    float total = 0.0f;
#pragma unroll 4
    for (int k = threadIdx.x / COLS; k < 32; k += column_shares(COLS))
        total += panel[Panel<COLS, 32, ALONG_K>::at(column, k)];
    return total;
}

// Chunks of a and b that shared memory holds.
#define STAGED 4

// As `tile`, which says what is left where. WN warpgroups share the columns of a tile, WM its rows,
// WK the k's; WN * WM * WK = 2.
//
// Both put half of each chunk of a into shared memory, two chunks ahead of their products, and say
// so by a barrier that they don't wait at; by another that they are done with a chunk. So one may be
// at its products while the other prepares its own.
template <int BM, int BN, int WM, int WN, int WK, bool A_ALONG_K, bool B_ALONG_K>
__device__ __forceinline__ void warpgroup_tile(float* shared, unsigned long long* barriers,
                                               const Product& p, int row0, int col0) {
    const int DEPTH = 32, STEPS = DEPTH / 8 / WK, COUNT = BM / WM / 2;
    typedef Panel<BN, DEPTH, B_ALONG_K> PanelB;
    const int SIZE_A = BM * DEPTH * (PRECISION == TF32X3 ? 2 : 1);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, group = threadIdx.x >> 7;
    const int wk = group % WK, wn = group / WK % WN, wm = group / (WK * WN);
    const int all_chunks = p.k / DEPTH + (p.k % DEPTH != 0);
    const int part = cluster_rank() % p.split();
    const int run = (all_chunks + p.split() - 1) / p.split();
    const int k0 = min(part * run, all_chunks) * DEPTH;
    const int chunks = min(run, all_chunks - min(part * run, all_chunks));
    int left_a = p.k - k0, left_b = left_a;  // from the next chunk to be read on
    const bool b_wide = is_wide(p.b, B_ALONG_K ? p.k : p.n);
    // a's panels stand first, at a multiple of their swizzle's size.
    const unsigned int start = (unsigned int)__cvta_generic_to_shared(shared);
    const int skipped = (1024 - (start & 1023) & 1023) / 4;
    float* panels_a = shared + skipped;
    float* panels_b = panels_a + STAGED * SIZE_A;
    // Of each stage: that a chunk is there, and that it is done with.
    const unsigned int there = (unsigned int)__cvta_generic_to_shared(barriers);
    const unsigned int free = there + STAGED * 8;
    const unsigned int mine_a = start + (skipped + wm * (BM / WM) * DEPTH) * 4;
    Staged<BM, A_ALONG_K> read_a(p.a, row0, k0, p.m, p.k);
    Reader<BN, DEPTH, B_ALONG_K> read_b(p.b, col0, k0, p.n, p.k);

    float sum[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = 0.0f;
#if PRECISION == TF32X3
    float chunk_sum[COUNT];  // the tensor cores truncate when they add, so sums stay short
#pragma unroll
    for (int i = 0; i < COUNT; ++i) chunk_sum[i] = 0.0f;
#endif
    // The first row of tiles also sums b's columns: a thread has some k's of one column.
    const bool sums_columns = p.epilogue() == 4 && row0 == 0;
    float column_sum = 0.0f;
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < 2 * STAGED; ++i) begin_barrier(there + i * 8, THREADS / 32);
    }
    __syncthreads();
#pragma unroll 1
    for (int c = 0; c < STAGED - 1; ++c, left_b -= DEPTH) {
        if (c < chunks) read_b.next(panels_b + c * PanelB::SIZE, left_b, b_wide);
        commit_copies();
    }
    if (chunks > 0) {
        read_a.next(left_a);
        Staged<BM, A_ALONG_K> first = read_a;
        read_a.advance();
        if (chunks > 1) read_a.next(left_a - DEPTH);
        first.put(panels_a, left_a);
        left_a -= DEPTH;
        wait_copies<STAGED - 2>();
        show_to_tensor_cores();
        arrive(there);
    }
    if (chunks > 1) {
        read_a.put(panels_a + SIZE_A, left_a);
        left_a -= DEPTH;
        read_a.advance();
        if (chunks > 2) read_a.next(left_a);
        wait_copies<STAGED - 3>();
        show_to_tensor_cores();
        arrive(there + 8);
    }
#pragma unroll 1
    for (int c = 0; c < chunks; ++c) {
        const int stage = c % STAGED;
        wait_phase(there + stage * 8, c / STAGED & 1);
        const float* panel_b = panels_b + stage * PanelB::SIZE;
        float raw[STEPS * 4];
        load_fragments<STEPS, BN, B_ALONG_K>(raw, panel_b, wn * 64 + warp * 16, wk * STEPS * 8);
        Factor<4> b[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int e = 0; e < 4; ++e) b[s].set(e, raw[s * 4 + e]);
        const unsigned long long panel =
            panel_descriptor(mine_a + stage * (SIZE_A * 4), wk * STEPS * 8);
        begin_products();
#if PRECISION == TF32X3
        // The small terms first.
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            warpgroup_multiply(chunk_sum, b[s].low, panel + s * 2, s > 0);
            warpgroup_multiply(chunk_sum, b[s].high, panel + (BM * DEPTH * 4 >> 4) + s * 2, 1);
        }
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            warpgroup_multiply(chunk_sum, b[s].high, panel + s * 2, 1);
#else
#pragma unroll
        for (int s = 0; s < STEPS; ++s) warpgroup_multiply(sum, b[s].high, panel + s * 2, 1);
#endif
        commit_products();

        // Beside the products, for those of later chunks:
        if (sums_columns) column_sum += sum_column<BN, B_ALONG_K>(panel_b);
        if (c + 2 < chunks) {
            const int next = (c + 2) % STAGED;
            if (c >= STAGED - 2) wait_phase(free + next * 8, (c + 2) / STAGED + 1 & 1);
            read_a.put(panels_a + next * SIZE_A, left_a);
            wait_copies<0>();
            show_to_tensor_cores();
            arrive(there + next * 8);
        }
        if (c + 3 < chunks) {
            read_a.advance();
            read_a.next(left_a -= DEPTH);
            const int next = (c + 3) % STAGED;
            if (c >= STAGED - 3) wait_phase(free + next * 8, (c + 3) / STAGED + 1 & 1);
            read_b.next(panels_b + next * PanelB::SIZE, left_b, b_wide);
            commit_copies();
            left_b -= DEPTH;
        }
#if PRECISION == TF32X3
        wait_products(chunk_sum);
        arrive(free + stage * 8);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum[i] += chunk_sum[i];
#else
        wait_products(sum);
        arrive(free + stage * 8);
#endif
    }

    wait_copies<0>();
    __syncthreads();  // the panels' memory now holds the sums
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < 2 * STAGED; ++i) end_barrier(there + i * 8);
    }
    const int pitch = sums_pitch(BN);
    float* mine = shared + (wk * BM + wm * (BM / WM) + (lane & 3) * 2) * pitch + wn * 64 +
                  warp * 16 + (lane >> 2);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        mine[(i / 4 * 8 + (i & 1)) * pitch + (i & 2) * 4] = sum[i];
    if (sums_columns) shared[WK * BM * pitch + threadIdx.x] = column_sum;
}
