// A tile of matmul.cuh's by warpgroups, on Hopper's tensor cores. Two warpgroups of four warps share
// it: its columns (128 of them), its rows, or the k's of a chunk.
//
// The tensor cores want the k's of a factor in shared memory side by side, and only one factor need
// be there. So the output is computed transposed: b, whose columns are the tile's, goes through
// registers and may lie in any order; a, whose rows are the tile's, is put into shared memory as
// they want it, as TF32 numbers, on its way from global memory. Both are doubly buffered or better.
#pragma once
#include "learner/warpgroup.cuh"

// The next chunk of a [height rows, depth k] for a tile of ROWS: on its way, then in shared memory.
// A thread has four elements that are contiguous in memory, ROWS / 32 times.
template <int ROWS, bool ALONG_K>
struct Staged {
    static const int UNITS = ROWS / 32;
    float4 held[UNITS];
    const float* from;
    long long step;  // elements from one of a thread's units to the next
    long long pitch;
    int row, unit, rows;

    __device__ inline Staged(const float* __restrict__ a, int row0, int k0, int height, int depth) {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        pitch = ALONG_K ? depth : height;
        row = ALONG_K ? threadIdx.x >> 3 : warp * (ROWS / 8);
        unit = ALONG_K ? threadIdx.x & 7 : lane;  // of k: four of them, or one
        rows = height - row0;
        step = ALONG_K ? 32 * pitch : 4;
        from = a + (ALONG_K ? (row0 + row) * pitch + k0 + unit * 4
                            : (k0 + unit) * pitch + row0 + row);
    }

    // Starts to read the next chunk, of whose k's `left` are within the matrix.
    __device__ inline void next(int left, bool wide) {
#pragma unroll
        for (int i = 0; i < UNITS; ++i) {
            const int r = row + i * (ALONG_K ? 32 : 4);
            const int here = ALONG_K ? (r < rows ? left - unit * 4 : 0)
                                     : (unit < left ? rows - r : 0);  // elements that there are
            held[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            const float* at = from + i * step;
            if (wide) {
                if (here > 0) held[i] = __ldg(reinterpret_cast<const float4*>(at));
            } else {
                if (here > 0) held[i].x = __ldg(at + 0);
                if (here > 1) held[i].y = __ldg(at + 1);
                if (here > 2) held[i].z = __ldg(at + 2);
                if (here > 3) held[i].w = __ldg(at + 3);
            }
        }
        from += ALONG_K ? 32 : 32 * pitch;
    }

    // Puts what was read into a panel: its TF32 numbers, and behind those what they leave.
    __device__ inline void put(float* panel) const {
#pragma unroll
        for (int i = 0; i < UNITS; ++i) {
            const int r = row + i * (ALONG_K ? 32 : 4);
            Factor<4> f;
            f.set(0, held[i].x), f.set(1, held[i].y), f.set(2, held[i].z), f.set(3, held[i].w);
            put_numbers(panel, r, f.high);
#if PRECISION == TF32X3
            put_numbers(panel + ROWS * 32, r, f.low);
#endif
        }
    }

    __device__ inline void put_numbers(float* panel, int r, const unsigned int (&x)[4]) const {
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

// As `tile`, which says what is left where. WN warpgroups share the columns of a tile, WM its rows,
// WK the k's; WN * WM * WK = 2. STAGES: of b.
template <int BM, int BN, int WM, int WN, int WK, int STAGES, bool A_ALONG_K, bool B_ALONG_K>
__device__ __forceinline__ void warpgroup_tile(float* shared, const Product& p, int row0, int col0) {
    const int DEPTH = 32, STEPS = DEPTH / 8 / WK, COUNT = BM / WM / 2;
    typedef Panel<BN, DEPTH, B_ALONG_K> PanelB;
    const int SIZE_A = BM * DEPTH * (PRECISION == TF32X3 ? 2 : 1);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, group = threadIdx.x >> 7;
    const int wk = group % WK, wn = group / WK % WN, wm = group / (WK * WN);
    const int all_chunks = p.k / DEPTH + (p.k % DEPTH != 0);
    const int part = cluster_rank() % p.split;
    const int run = (all_chunks + p.split - 1) / p.split;
    const int k0 = min(part * run, all_chunks) * DEPTH;
    const int chunks = min(run, all_chunks - min(part * run, all_chunks));
    const bool a_wide = is_wide(p.a, A_ALONG_K ? p.k : p.m);
    const bool b_wide = is_wide(p.b, B_ALONG_K ? p.k : p.n);
    // a's two panels stand first, at a multiple of their swizzle's size.
    const unsigned int start = (unsigned int)__cvta_generic_to_shared(shared);
    const int skipped = (1024 - (start & 1023) & 1023) / 4;
    float* panels_a = shared + skipped;
    float* panels_b = panels_a + 2 * SIZE_A;
    const unsigned int tiles_a = start + skipped * 4 + wm * (BM / WM) * DEPTH * 4;
    Staged<BM, A_ALONG_K> read_a(p.a, row0, k0, p.m, p.k);
    Reader<BN, DEPTH, B_ALONG_K> read_b(p.b, col0, k0, p.n, p.k);

    float sum[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = 0.0f;
#if PRECISION == TF32X3
    float chunk_sum[COUNT];  // the tensor cores truncate when they add, so sums stay short
#endif
    // The first row of tiles also sums b's columns: a thread has some k's of one column.
    const bool sums_columns = p.epilogue == 4 && row0 == 0;
    const int column = threadIdx.x % BN, share = threadIdx.x / BN;
    const int SHARES = column_shares(BN);
    float column_sum = 0.0f;

#pragma unroll
    for (int c = 0; c < STAGES - 1; ++c) {
        if (c < chunks) read_b.next(panels_b + c * PanelB::SIZE, p.k - k0 - c * DEPTH, b_wide);
        commit_copies();
    }
    if (chunks > 0) {
        read_a.next(p.k - k0, a_wide);
        read_a.put(panels_a);
        if (chunks > 1) read_a.next(p.k - k0 - DEPTH, a_wide);
    }
    int slot = 0;
#pragma unroll 1
    for (int c = 0; c < chunks; ++c) {
        wait_copies<STAGES - 2>();
        show_to_tensor_cores();
        __syncthreads();  // and everybody is done with what is overwritten next
        if (c + STAGES - 1 < chunks) {
            const int free_slot = slot == 0 ? STAGES - 1 : slot - 1;
            read_b.next(panels_b + free_slot * PanelB::SIZE, p.k - k0 - (c + STAGES - 1) * DEPTH,
                        b_wide);
        }
        commit_copies();

        const float* panel_b = panels_b + slot * PanelB::SIZE;
        Factor<4> b[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                b[s].set(e, panel_b[PanelB::at(wn * 64 + warp * 16 + (lane >> 2) + (e & 1) * 8,
                                               (wk * STEPS + s) * 8 + (lane & 3) + (e >> 1) * 4)]);
        const unsigned int tile_a = tiles_a + (c & 1) * SIZE_A * 4;
        begin_products();
#if PRECISION == TF32X3
        // The small terms first.
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const int k = (wk * STEPS + s) * 8;
            warpgroup_multiply(chunk_sum, b[s].low, panel_descriptor(tile_a, k), s > 0);
            warpgroup_multiply(chunk_sum, b[s].high,
                               panel_descriptor(tile_a + BM * DEPTH * 4, k), 1);
        }
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            warpgroup_multiply(chunk_sum, b[s].high,
                               panel_descriptor(tile_a, (wk * STEPS + s) * 8), 1);
#else
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            warpgroup_multiply(sum, b[s].high, panel_descriptor(tile_a, (wk * STEPS + s) * 8), 1);
#endif
        commit_products();
        // Beside the products:
        if (c + 1 < chunks) {
            read_a.put(panels_a + (c + 1 & 1) * SIZE_A);
            if (c + 2 < chunks) read_a.next(p.k - k0 - (c + 2) * DEPTH, a_wide);
        }
        if (sums_columns && share < SHARES) {
#pragma unroll 4
            for (int k = share; k < DEPTH; k += SHARES)
                column_sum += panel_b[PanelB::at(column, k)];
        }
#if PRECISION == TF32X3
        wait_products(chunk_sum);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum[i] += chunk_sum[i];
#else
        wait_products(sum);
#endif
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }

    wait_copies<0>();
    __syncthreads();  // the panels' memory now holds the sums
    const int pitch = sums_pitch(BN);
    float* mine = shared + (wk * BM + wm * (BM / WM)) * pitch + wn * 64 + warp * 16;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        mine[(i / 4 * 8 + (lane & 3) * 2 + (i & 1)) * pitch + (lane >> 2) + (i & 2) * 4] = sum[i];
    if (sums_columns && share < SHARES)
        shared[WK * BM * pitch + share * BN + column] = column_sum;
}
