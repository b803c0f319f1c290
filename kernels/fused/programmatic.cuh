// Programmatic dependent launch: a kernel may start while the one before it runs, and waits where it
// needs what that one wrote. Both do nothing in a launch without it, and below 9.0.
#pragma once

// Waits until all earlier kernels are complete and what they wrote is seen.
__device__ inline void wait_for_grid() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start as soon as there is room for it.
__device__ inline void start_next_grid() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
