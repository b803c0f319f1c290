// The average of the quantile loss, and the weight that it earns the quantile head (iqn_readiness.py).
#pragma once

// By one thread: takes the mean loss of a step that was not skipped into `ready` [2].
__device__ inline void take_loss(double mean, double* ready, double decay, double low, double high) {
    if (!isfinite(mean)) return;
    const double before = ready[0];
    const double ema = isnan(before) ? mean : before * decay + (1.0 - decay) * mean;
    const double share = (high - ema) / (high - low);
    ready[0] = ema;
    ready[1] = share < 0.0 ? 0.0 : (share > 1.0 ? 1.0 : share);
}
