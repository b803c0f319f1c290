// Up to four products a^T b with long sums in one launch; see matmul_long.py.
//
// A tile of the output has a block for each share of its sum. The block's warps share the k's of
// each chunk between them, with TM x TN outputs a thread, and add up what they have in shared memory
// in the order of the warps. The last block of a group of shares adds these up, and the last group
// of the tile the groups: each in its order, so that bits depend on a product's sizes alone.
//
// Shared memory: panels are [k][column], as they lie in memory. A warp reads 128 bytes of a's in a
// row and 64 or 32 of b's, each address by several lanes, which is no conflict; copies in and the
// sums out go by whole rows. PITCH puts the two rows that eight lanes store at once sixteen banks
// apart (narrow: two of four such rows collide, once a block).
#include "common/async_copy.cuh"
#include "common/last_block.cuh"

#define THREADS 256
#define WARPS 8
#define DEPTH 32   // k's of a chunk
#define STAGES 3   // chunks in flight
#define ROWS 64    // of a tile; a thread has eight of them
#define TM 8
#define SLOT (ROWS * 64 + 64)      // floats in scratch that a share has: sums, and those of columns

// In shared memory: the panels, or the warps' sums, those of columns, and a tile on its way out.
#define COLUMNS_AT (4 * 32 * 68)
#define TILE_AT (COLUMNS_AT + THREADS)

// One product's arguments, as matmul_long.py states them.
struct Product {
    const float* a;
    const float* b;
    float* extra;
    float* out;
    int m, n, k, epilogue, narrow, shares;
};

template <class T>
__device__ inline T ceil_of(T x, T y) {
    return x / y + (x % y != 0);
}

// Tiles beside each other, and all.
__device__ inline int tiles_across(const Product& p) {
    return p.narrow ? ceil_of((unsigned int)p.n, 8u) : ceil_of((unsigned int)p.n, 64u);
}

__device__ inline int tiles_of(const Product& p) {
    return p.m > 0 ? ceil_of((unsigned int)p.m, (unsigned int)ROWS) * tiles_across(p) : 0;
}

__device__ inline bool aligned(const float* pointer, int width) {
    return width % 4 == 0 && (reinterpret_cast<unsigned long long>(pointer) & 15) == 0;
}

// What a thread copies of WIDTH columns of a matrix [k, width], a chunk of k's at a time; zeros from
// outside. Four elements at a time if `wide`, which the matrix's alignment and width must allow.
template <int WIDTH>
struct Reader {
    static const int WIDE_STEP = THREADS / (WIDTH / 4), STEP = THREADS / WIDTH;  // lines
    const float* from;  // its first element of the next chunk
    int pitch;
    bool wide, inside;

    __device__ inline Reader(const float* m, int width, int first_column, int k0, bool is_wide) {
        wide = is_wide;
        pitch = width;
        inside = column() < width - first_column;
        from = m + (k0 + line()) * (long long)width + first_column + column();
    }

    __device__ inline int line() { return threadIdx.x / (wide ? WIDTH / 4 : WIDTH); }
    __device__ inline int column() {
        return wide ? threadIdx.x % (WIDTH / 4) * 4 : threadIdx.x % WIDTH;
    }

    // Starts the copy of the next chunk, of whose k's `left` are within the matrix.
    __device__ inline void next(float* panel, int left, const float* matrix) {
        const float* at = from;
        float* to = panel + line() * WIDTH + column();
        if (wide) {
#pragma unroll
            for (int i = 0; i < DEPTH; i += WIDE_STEP) {
                if (WIDE_STEP > DEPTH && line() >= DEPTH) break;
                const bool here = inside && line() + i < left;
                copy_async<16>(to + i * WIDTH, here ? at : matrix, here);
                at += (long long)WIDE_STEP * pitch;
            }
        } else {
#pragma unroll 1
            for (int l = line(); l < DEPTH; l += STEP) {
                const bool here = inside && l < left;
                copy_async<4>(to, here ? at : matrix, here);
                at += (long long)STEP * pitch;
                to += STEP * WIDTH;
            }
        }
        from += (long long)DEPTH * pitch;
    }
};

__device__ inline float4 add(float4 x, float4 y) {
    return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

__device__ inline float finish(float total, float other, int epilogue) {
    if (epilogue == 1 || epilogue == 2) total += other;
    if (epilogue == 2 && total < 0.0f) total = 0.0f;  // a NaN is not less: it stays
    if (epilogue == 3 && !(other > 0.0f)) total = 0.0f;
    return total;
}

// Four sums of a tile on their way out: row `r` from column `c` on; row ROWS has those of b's columns.
__device__ inline void put(const Product& p, int row0, int col0, int r, int c, float4 sums) {
    const int row = row0 + r, col = col0 + c;
    if (col >= p.n || (r < ROWS && row >= p.m)) return;
    const long long at = (long long)row * p.n + col;
    float total[4] = {sums.x, sums.y, sums.z, sums.w};
    float* to = p.out + at;
    if (r == ROWS) {
        to = p.extra + col;
    } else if (p.epilogue > 0 && p.epilogue < 4) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (col + j < p.n)
                total[j] = finish(total[j], p.extra[p.epilogue == 3 ? at + j : col + j], p.epilogue);
    }
    if (aligned(to, p.n)) {
        *reinterpret_cast<float4*>(to) = make_float4(total[0], total[1], total[2], total[3]);
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (col + j < p.n) to[j] = total[j];
    }
}

// The sums of one share of a tile, into `to`: [ROWS + 1][columns of a tile].
template <int TN>
__device__ inline void add_share(float* shared, const Product& p, int row0, int col0, int share,
                                 float* to) {
    const int COLUMNS = TN == 8 ? 64 : 8, BESIDE = COLUMNS / (4 * TN);  // warps beside each other
    const int SPLITS = WARPS / BESIDE, EACH = DEPTH / SPLITS;           // and behind: their k's
    const int VECTOR = TN < 4 ? TN : 4, STAGE = DEPTH * (ROWS + COLUMNS);
    const int PITCH = COLUMNS + 4;
    const int warp = threadIdx.x >> 5, r = (threadIdx.x & 31) >> 2, c = threadIdx.x & 3;
    const int split = warp / BESIDE, column = warp % BESIDE * 32 + c * VECTOR;
    const int all_chunks = ceil_of(p.k, DEPTH), run = ceil_of(all_chunks, p.shares);
    const int first = min(share * run, all_chunks), chunks = min(run, all_chunks - first);
    const bool wide_a = aligned(p.a, p.m), wide_b = aligned(p.b, p.n);
    const bool both = wide_a && wide_b;  // panels of one width are copied in one way
    Reader<ROWS> read_a(p.a, p.m, row0, first * DEPTH, TN == 8 ? both : wide_a);
    Reader<COLUMNS> read_b(p.b, p.n, col0, first * DEPTH, TN == 8 ? both : wide_b);
    const bool sums_columns = p.epilogue == 4 && row0 == 0;

    float sum[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;
    float column_sum = 0.0f;  // of column threadIdx.x % COLUMNS

    int stage = 0;
    __syncthreads();  // everybody is done with the tile before
#pragma unroll 1
    for (int chunk = 1 - STAGES; chunk < chunks; ++chunk) {  // from the copies before any work on
        if (chunk >= 0) {
            wait_copies<STAGES - 2>();
            __syncthreads();  // and everybody is done with what the next copy overwrites
        }
        const int next = chunk + STAGES - 1;
        if (next < chunks) {
            const int left = p.k - (first + next) * DEPTH;
            float* panel = shared + next % STAGES * STAGE;
            read_a.next(panel, left, p.a);
            read_b.next(panel + DEPTH * ROWS, left, p.b);
        }
        commit_copies();
        if (chunk < 0) continue;
        const float* panel = shared + stage * STAGE;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        if (sums_columns) {
#pragma unroll
            for (int e = 0; e < DEPTH * COLUMNS; e += THREADS)
                column_sum += panel[DEPTH * ROWS + e + threadIdx.x];
        }
        const float* from_a = panel + split * EACH * ROWS + r * 4;
        const float* from_b = panel + DEPTH * ROWS + split * EACH * COLUMNS + column;
#pragma unroll 4
        for (int k = 0; k < EACH; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                *reinterpret_cast<float4*>(a + i) =
                    *reinterpret_cast<const float4*>(from_a + k * ROWS + i * 8);
#pragma unroll
            for (int j = 0; j < TN; j += VECTOR) {
                if (VECTOR == 4)
                    *reinterpret_cast<float4*>(b + j) =
                        *reinterpret_cast<const float4*>(from_b + k * COLUMNS + j * 4);
                else
                    *reinterpret_cast<float2*>(b + j) =
                        *reinterpret_cast<const float2*>(from_b + k * COLUMNS);
            }
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
        }
    }
    wait_copies<0>();

    // The warps' sums meet in the panels' memory, 32 rows of the tile at a time.
    const int UNITS = 32 * COLUMNS / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        __syncthreads();
        float* mine = shared + (split * 32 + r * 4) * PITCH + column;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
                mine[i * PITCH + j / VECTOR * 16 + j % VECTOR] = sum[half * 4 + i][j];
        if (half == 0 && sums_columns) shared[COLUMNS_AT + threadIdx.x] = column_sum;
        __syncthreads();
        const int units = UNITS + (half == 1 && sums_columns ? COLUMNS / 4 : 0);
#pragma unroll 1
        for (int u = threadIdx.x; u < units; u += THREADS) {
            const bool of_columns = u >= UNITS;
            const int at = u % (COLUMNS / 4) * 4;
            const int row = of_columns ? ROWS : half * 32 + u / (COLUMNS / 4);
            const float* from = of_columns ? shared + COLUMNS_AT + at
                                           : shared + u / (COLUMNS / 4) * PITCH + at;
            const int step = of_columns ? COLUMNS : 32 * PITCH;
            const int count = of_columns ? THREADS / COLUMNS : SPLITS;
            float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
            for (int s = 0; s < count; ++s)
                total = add(total, *reinterpret_cast<const float4*>(from + s * step));
            *reinterpret_cast<float4*>(to + row * COLUMNS + at) = total;
        }
    }
}

// Adds up what the shares of a tile have left in their slots: the last block of a group of them the
// group, and the last one of the tile the groups, into `tile`. Whether this is that block. Loads of
// a round stand before its additions.
__device__ inline bool add_shares(const Product& p, int units, int share, float* slots,
                                  unsigned int* tickets, float* tile) {
    const int EACH = (SLOT / 4 + THREADS - 1) / THREADS, ROUND = 4;
    int fan = 2;
    while (fan * fan < p.shares) ++fan;
    const int first = share / fan * fan, groups = ceil_of(p.shares, fan);
    int count = min(fan, p.shares - first);
    long long step = SLOT;
    float* from = slots + first * step;
    unsigned int* ticket = tickets + first;
#pragma unroll 1
    while (true) {
        if (!last_of(ticket, count)) return false;
        float4 total[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) total[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
        for (int s = 0; s < count; s += ROUND) {
            float4 part[ROUND][EACH];
#pragma unroll
            for (int q = 0; q < ROUND; ++q)
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
                    const int u = threadIdx.x + i * THREADS;
                    part[q][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    if (s + q < count && u < units)
                        part[q][i] =
                            __ldcg(reinterpret_cast<const float4*>(from + (s + q) * step) + u);
                }
#pragma unroll
            for (int q = 0; q < ROUND; ++q)
#pragma unroll
                for (int i = 0; i < EACH; ++i) total[i] = add(total[i], part[q][i]);
        }
        const bool ends = ticket == tickets + 1 || groups == 1;
        float4* to = reinterpret_cast<float4*>(ends ? tile : from);
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int u = threadIdx.x + i * THREADS;
            if (u < units) to[u] = total[i];
        }
        if (ends) return true;
        from = slots;
        step = (long long)SLOT * fan;
        count = groups;
        ticket = tickets + 1;  // of no group: they begin at multiples of `fan`
    }
}

__device__ inline Product product(const float* a, const float* b, float* extra, float* out, int m,
                                  int n, int k, int form) {
    // Three bits for the epilogue, one for narrow tiles, the rest is the number of shares.
    return Product{a, b, extra, out, m, n, k, form & 7, form >> 3 & 1, form >> 4};
}

__device__ inline int blocks_of(const Product& p) { return tiles_of(p) * p.shares; }

__device__ inline int slots_of(const Product& p) { return p.shares > 1 ? blocks_of(p) : 0; }

extern "C" __global__ void __launch_bounds__(THREADS, 2)
matmul_long(const float* a0, const float* b0, float* extra0, float* out0, int m0, int n0, int k0,
            int form0, const float* a1, const float* b1, float* extra1, float* out1, int m1, int n1,
            int k1, int form1, const float* a2, const float* b2, float* extra2, float* out2, int m2,
            int n2, int k2, int form2, const float* a3, const float* b3, float* extra3, float* out3,
            int m3, int n3, int k3, int form3, int blocks, int shared_bytes, float* scratch,
            unsigned int* tickets) {
    extern __shared__ __align__(16) float shared[];
    for (int t = blockIdx.x; t < blocks; t += gridDim.x) {
        // The member is the block's: its arguments are chosen before the tile's code.
        int at = t, slot = 0;
        Product p = product(a0, b0, extra0, out0, m0, n0, k0, form0);
        if (at >= blocks_of(p)) {
            at -= blocks_of(p), slot += slots_of(p);
            p = product(a1, b1, extra1, out1, m1, n1, k1, form1);
            if (at >= blocks_of(p)) {
                at -= blocks_of(p), slot += slots_of(p);
                p = product(a2, b2, extra2, out2, m2, n2, k2, form2);
                if (at >= blocks_of(p)) {
                    at -= blocks_of(p), slot += slots_of(p);
                    p = product(a3, b3, extra3, out3, m3, n3, k3, form3);
                    if (at >= blocks_of(p)) return;  // more blocks than the products have
                }
            }
        }
        const int columns = p.narrow ? 8 : 64, across = tiles_across(p);
        const int number = at / p.shares, share = at % p.shares;
        const int row0 = number / across * ROWS, col0 = number % across * columns;
        slot += number * p.shares;
        float* slots = scratch + (long long)slot * SLOT;
        float* tile = shared + TILE_AT;
        float* to = p.shares > 1 ? slots + (long long)share * SLOT : tile;
        if (p.narrow)
            add_share<2>(shared, p, row0, col0, share, to);
        else
            add_share<8>(shared, p, row0, col0, share, to);
        const int shift = p.narrow ? 1 : 4;  // of units of four in a row
        const int units = (ROWS + (p.epilogue == 4 && row0 == 0)) << shift;
        if (p.shares > 1 && !add_shares(p, units, share, slots, tickets + slot, tile)) continue;
        __syncthreads();
#pragma unroll 1
        for (int u = threadIdx.x; u < units; u += THREADS)
            put(p, row0, col0, u >> shift, (u & (1 << shift) - 1) * 4,
                *reinterpret_cast<const float4*>(tile + u * 4));
    }
}
