// Whether a loop of rounds takes another turn, by one thread (loop_control.py).
#include "common/layout.cuh"

extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

// `order` and `report` are host memory: the host writes the one and reads the other meanwhile.
extern "C" __global__ void loop_control(const long long* __restrict__ counters,
                                        const int* __restrict__ skip, const long long* order,
                                        long long* report, int* __restrict__ go,
                                        unsigned long long condition) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    const volatile long long* asked = order;
    const long long until = asked[O_UNTIL], stop = asked[O_STOP];
    const long long limit = asked[O_LIMIT], begun = asked[O_BEGUN];
    const long long learns = counters[RNG], collects = counters[COLLECT];

    long long run = skip[0] != 0 ? counters[SKIPPED_IN_A_ROW] + 1 : 0;
    if (run > learns - begun) run = learns - begun;
    long long ending = E_RUNNING;
    if (limit > 0 && run >= limit) ending = E_NONFINITE;
    else if (learns >= until) ending = E_REACHED;
    else if (stop != 0) ending = E_STOPPED;

    volatile long long* told = report;
    told[L_LEARNS] = learns;
    told[L_COLLECTS] = collects;
    __threadfence_system();
    told[L_ENDING] = ending;
    go[0] = ending == E_RUNNING ? 1 : 0;
    // Outside a graph there is no condition.
    if (condition != 0) cudaGraphSetConditional(condition, ending == E_RUNNING ? 1u : 0u);
}
