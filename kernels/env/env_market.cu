// The market environment, a lane a warp (env_market.py).
#include "common/detmath.cuh"
#include "env/lanes.cuh"
#include "env/market_lane.cuh"

struct Account {
    double equity, at_fill;  // after the bar; when the trade is made, before what it costs
    bool ruined;
};

__device__ inline void settle(Account& account, double equity) {
    account.equity = equity;
    account.ruined = account.ruined || !(equity > 0.0);
}

// From the close of one bar to the close of the next, by way of a trade at `price`.
__device__ inline Account trade_bar(double equity, double held, double target, double close,
                                    double price, double next_close, int sizing, double multiplier,
                                    double tick_size, double commission, double slippage,
                                    double borrow_rate) {
    Account account = {equity, equity, false};
    double change = fabs(target - held);
    double borrowed = target < 0.0 ? -target : 0.0;
    if (sizing == Z_EQUITY) {
        settle(account, account.equity * (1.0 + held * (price / close - 1.0)));
        account.at_fill = account.equity;
        settle(account, account.equity * (1.0 - (commission + slippage) * change));
        settle(account, account.equity * (1.0 + target * (next_close / price - 1.0)));
        settle(account, account.equity * (1.0 - borrow_rate * borrowed));
    } else {
        double side = (slippage * tick_size) * multiplier + commission;
        settle(account, account.equity + (held * multiplier) * (price - close));
        account.at_fill = account.equity;
        settle(account, account.equity - side * change);
        settle(account, account.equity + (target * multiplier) * (next_close - price));
        settle(account, account.equity - ((borrow_rate * borrowed) * multiplier) * next_close);
    }
    account.ruined = account.ruined || isinf(account.equity);
    return account;
}

struct Holding {
    double equity, position, entry;
    long long held;
};

// Column `c` of the observation at the close of bar `cursor`.
__device__ inline float observe(const float* __restrict__ features, int width, long long cursor,
                                const Holding& holding, double largest, int c) {
    if (c < width) return features[cursor * width + c];
    if (c == width) return largest > 0.0 ? (float)(holding.position / largest) : 0.0f;
    if (c == width + 1) {
        return holding.position != 0.0 ? (float)det_log(holding.equity / holding.entry) : 0.0f;
    }
    if (c == width + 2) {
        return (float)((double)holding.held / ((double)holding.held + 10.0));
    }
    return 0.0f;
}

extern "C" __global__ void env_market(
    const float* __restrict__ features, const double* __restrict__ open,
    const double* __restrict__ close, const double* __restrict__ positions,
    const int* __restrict__ action, double* __restrict__ lane_f64, long long* __restrict__ lane_i64,
    float* __restrict__ obs, float* __restrict__ obs_tm1, float* __restrict__ obs_t,
    float* __restrict__ reward, unsigned char* __restrict__ flags, long long* __restrict__ episode,
    double* __restrict__ trace, int lanes, long long bars, int features_n, int actions, int padded,
    long long first, long long last, int max_steps, int random_start, int sizing, int fill,
    double initial_equity, double multiplier, double tick_size, double commission, double slippage,
    double borrow_rate, int reward_kind, double reward_scale, double floor_reward,
    unsigned long long seed, long long trace_len, int reset) {
    if (bars < 1) return;
    int thread = threadIdx.x & 31;
    long long warps = (long long)gridDim.x * (blockDim.x >> 5);
    long long final_bar = (last < bars ? last : bars) - 1;
    double largest = 0.0;
    for (int j = 0; j < actions; ++j) largest = fmax(largest, fabs(positions[j]));

    for (long long lane = blockIdx.x * (long long)(blockDim.x >> 5) + (threadIdx.x >> 5);
         lane < lanes; lane += warps) {
        double* money = lane_f64 + lane * LANE_FIELDS;
        long long* place = lane_i64 + lane * LANE_FIELDS;
        Holding holding = {money[L_EQUITY], money[L_POSITION], money[L_ENTRY_EQUITY], place[L_HELD]};
        double final_equity = money[L_FINAL_EQUITY];
        long long cursor = clamp_index(place[L_CURSOR], bars), steps = place[L_STEPS];
        long long begun = place[L_EPISODE], tracing = place[L_TRACING], traced = place[L_TRACED];
        long long row = lane * padded;
        bool restart = reset != 0;
        if (restart) {
            tracing = 1;
            traced = 0;
        } else {
            int asked = action[lane];
            long long a = clamp_index(asked, actions);
            double target = holding.position, value = 0.0;
            bool ruined = false;
            if (cursor < final_bar) {
                double before = holding.equity;
                target = positions[a];
                double here = close[cursor], next = close[cursor + 1];
                double price = fill == B_NEXT_OPEN ? open[cursor + 1]
                                                   : (fill == B_NEXT_CLOSE ? next : here);
                Account account = trade_bar(before, holding.position, target, here, price, next,
                                            sizing, multiplier, tick_size, commission, slippage,
                                            borrow_rate);
                ruined = account.ruined;
                cursor += 1;
                if (ruined) {
                    holding = Holding{0.0, 0.0, 0.0, 0};
                    value = floor_reward;
                } else {
                    bool entered = target != 0.0 && !(holding.position * target > 0.0);
                    holding.entry = target == 0.0 ? 0.0 : (entered ? account.at_fill : holding.entry);
                    holding.held = target == 0.0 ? 0 : (entered ? 1 : holding.held + 1);
                    holding.position = target;
                    holding.equity = account.equity;
                    value = reward_kind == W_LOG_RATIO ? det_log(account.equity / before)
                                                       : (account.equity - before) * reward_scale;
                }
            }
            steps += 1;
            unsigned int flag = a != asked ? F_INVALID : 0;
            if (ruined) {
                flag |= F_TERMINATED;
            } else if (cursor >= final_bar || (max_steps > 0 && steps >= max_steps)) {
                flag |= F_TRUNCATED;
            }
            restart = (flag & (F_TERMINATED | F_TRUNCATED)) != 0;
            for (int c = thread; c < padded; c += 32) {
                obs_tm1[row + c] = obs[row + c];
                obs_t[row + c] = observe(features, features_n, cursor, holding, largest, c);
            }
            bool keep = tracing != 0 && steps <= trace_len;
            if (thread == 0) {
                reward[lane] = (float)value;
                flags[lane] = (unsigned char)flag;
                episode[lane] = lane + (long long)lanes * (begun - 1);
                if (keep) {
                    double* entry = trace + (lane * trace_len + steps - 1) * TRACE_FIELDS;
                    entry[X_EQUITY] = holding.equity;
                    entry[X_POSITION] = target;
                    entry[X_REWARD] = value;
                    entry[X_CURSOR] = (double)cursor;
                }
            }
            if (keep) traced = steps;
            if (restart) {
                tracing = 0;
                final_equity = holding.equity;
            }
        }
        if (restart) {
            long long offset = random_start ? reset_draw(seed, lane, begun, final_bar - first) : 0;
            cursor = clamp_index(first + offset, bars);
            holding = Holding{initial_equity, 0.0, 0.0, 0};
            steps = 0;
            begun += 1;
        }
        for (int c = thread; c < padded; c += 32) {
            obs[row + c] = observe(features, features_n, cursor, holding, largest, c);
        }
        __syncwarp();  // the whole warp has read the lane's fields
        if (thread == 0) {
            money[L_EQUITY] = holding.equity;
            money[L_POSITION] = holding.position;
            money[L_ENTRY_EQUITY] = holding.entry;
            money[L_FINAL_EQUITY] = final_equity;
            place[L_CURSOR] = cursor;
            place[L_STEPS] = steps;
            place[L_EPISODE] = begun;
            place[L_HELD] = holding.held;
            place[L_TRACING] = tracing;
            place[L_TRACED] = traced;
        }
    }
}
