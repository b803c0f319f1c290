// Reading a head matrix row: [A] action values, or [A + 1] advantages and the state value (heads.py).
#pragma once

// Greedy action: the first of the largest; a NaN counts as -infinity.
__device__ inline int greedy_action(const float* row, int actions) {
    int best = 0;
    float best_value = __int_as_float(0xff800000);
#pragma unroll 1
    for (int j = 0; j < actions; ++j) {
        if (row[j] > best_value) {
            best = j;
            best_value = row[j];
        }
    }
    return best;
}

// Value of action `a`.
__device__ inline float action_value(const float* row, int a, int actions, int dueling) {
    if (!dueling) return row[a];
    float sum = row[0];
#pragma unroll 1
    for (int j = 1; j < actions; ++j) sum += row[j];
    return (row[actions] + row[a]) - sum / (float)actions;
}

// Loss of a TD error before its weight, and the slope in the error.
struct Cost {
    float cost, slope;
};

__device__ inline Cost td_cost(float error, int mse, float delta) {
    if (mse) return Cost{(0.5f * error) * error, error};
    const float size = fabsf(error);
    return Cost{size <= delta ? (0.5f * error) * error : delta * (size - 0.5f * delta),
                error > delta ? delta : (error < -delta ? -delta : error)};
}
