// Products of a warpgroup's on Hopper's tensor cores (compute capability 9.0 alone): four warps, 64
// rows, asynchronously. One factor is in registers, as mma.sync's m16n8k8 has it, sixteen rows a
// warp; the other in shared memory, 32 floats of k a row, swizzled (`swizzled`). Both are TF32: the
// last 13 bits do not count.
#pragma once

// Where four floats of `row`, from k = 4 x `unit` on, stand in a panel of rows of 128 bytes, in
// floats. The panel begins at a multiple of 1,024 bytes.
__device__ inline int swizzled(int row, int unit) { return row * 32 + ((unit ^ (row & 7)) << 2); }

// The panel as the tensor cores are told of it, from k on; k a multiple of 8.
__device__ inline unsigned long long panel_descriptor(unsigned int address, int k) {
    // Sixteen bytes are the unit. Eight rows are 1,024 bytes; the swizzle is the one over 128.
    return ((unsigned long long)((address + k * 4) >> 4 & 0x3fff)) | 1ull << 16 | 64ull << 32 |
           1ull << 62;
}

// A barrier in shared memory on which `count` warps arrive in each phase, without waiting.
__device__ inline void begin_barrier(unsigned int barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ inline void end_barrier(unsigned int barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// What this warp did before is done for who waits for the phase.
__device__ inline void arrive(unsigned int barrier) {
    __syncwarp();
    if ((threadIdx.x & 31) == 0)
        asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(
                         barrier)
                     : "memory");
}

// Whether a phase has ended: the first, third, ... for `odd` 0, the second, fourth, ... for 1.
__device__ inline bool phase_ended(unsigned int barrier, int odd) {
    int ended;
    asm volatile(
        "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;"
        " selp.b32 %0, 1, 0, done; }"
        : "=r"(ended)
        : "r"(barrier), "r"(odd)
        : "memory");
    return ended;
}

__device__ inline void wait_phase(unsigned int barrier, int odd) {
    while (!phase_ended(barrier, odd)) {}
}

// What this thread has written to shared memory is there for the tensor cores, once a barrier has
// made it so for everybody.
__device__ inline void show_to_tensor_cores() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Registers that products will use are as they are now.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all products of the warpgroup; `d` is what they add to.
template <int COUNT>
__device__ inline void wait_products(float (&d)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d = a b, or d += a b where `keep` is set: started, not done. `b` describes as many rows as d has
// columns; lane l of warp w has of d[i] row 16 w + l / 4 + (i & 2) * 4, column i / 4 * 8 + l % 4 * 2
// + (i & 1).
// 64 x 128 outputs.
__device__ inline void warpgroup_multiply(float (&d)[64], const unsigned int (&a)[4],
                                          unsigned long long b, int keep) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0;"
        " wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
        " %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        " }, {%64, %65, %66, %67}, %68, p, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
          "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]),
          "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

// 64 x 64 outputs.
__device__ inline void warpgroup_multiply(float (&d)[32], const unsigned int (&a)[4],
                                          unsigned long long b, int keep) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;"
        " wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"
        " %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        " }, {%32, %33, %34, %35}, %36, p, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}
