// Thread block clusters: a block's place in its cluster, loads from and stores into a neighbour's
// shared memory, and the barrier of a cluster. Without clusters in the architecture (below 9.0) a block is alone in its.
#pragma once

__device__ inline int cluster_rank() {
#if __CUDA_ARCH__ >= 900
    unsigned int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
#else
    return 0;
#endif
}

__device__ inline int cluster_size() {
#if __CUDA_ARCH__ >= 900
    unsigned int size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return (int)size;
#else
    return 1;
#endif
}

// Waits for all threads of the cluster that have not exited; what each wrote before, into any of the
// cluster's shared memories, all see after. By whole warps.
__device__ inline void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
}

// Where `here`, in this block's shared memory, lies in that of block `rank` of the cluster.
__device__ inline unsigned int cluster_address(const float* here, int rank) {
    unsigned int address = (unsigned int)__cvta_generic_to_shared(here);
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
    return address;
}

__device__ inline void cluster_store(unsigned int address, float value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
#endif
}

__device__ inline void cluster_store(unsigned int address, float4 v) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x),
                 "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
#endif
}

__device__ inline float cluster_load(unsigned int address) {
    float value = 0.0f;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
#else
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
#endif
    return value;
}

__device__ inline float4 cluster_load4(unsigned int address) {
    float4 v;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
#else
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
#endif
    return v;
}
