// Copies from global to shared memory that a thread need not wait for where it starts them.
#pragma once

// Four bytes or sixteen from global to shared memory, zeros where `inside` is false.
template <int BYTES>
__device__ inline void copy_async(float* to, const float* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
    const int bytes = inside ? BYTES : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(from),
                 "n"(BYTES), "r"(bytes));
#else
    for (int i = 0; i < BYTES / 4; ++i) to[i] = inside ? from[i] : 0.0f;
#endif
}

__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// Waits until at most PENDING groups of this thread's copies are under way.
template <int PENDING>
__device__ inline void wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
#endif
}
