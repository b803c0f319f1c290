// Fields of a market lane and ways to size and fill (env_market.py).
#pragma once

enum LaneF64 { L_EQUITY = 0, L_POSITION = 1, L_ENTRY_EQUITY = 2, L_FINAL_EQUITY = 3 };
enum LaneI64 { L_CURSOR = 0, L_STEPS = 1, L_EPISODE = 2, L_HELD = 3, L_TRACING = 4, L_TRACED = 5 };
#define LANE_FIELDS 8

enum Sizing { Z_EQUITY = 0, Z_CONTRACTS = 1 };
enum Fill { B_NEXT_OPEN = 0, B_NEXT_CLOSE = 1, B_THIS_CLOSE = 2 };
enum RewardKind { W_LOG_RATIO = 0, W_SCALED_PNL = 1 };

enum TraceField { X_EQUITY = 0, X_POSITION = 1, X_REWARD = 2, X_CURSOR = 3 };
#define TRACE_FIELDS 4
