// Names for the elements of the small state arrays that host and device share (see layout.py).
#pragma once

#define FAN_OUT 32

enum Counter { ADAM_TRUNK = 0, ADAM_SELECTIVITY = 1, ADAM_DENOISE = 2, ADAM_IQL = 3,
               ADAM_IQL_LOW = 4, ADAM_IQN = 5, ADAM_ATTENTION = 6, RNG = 7, WARM_UP = 8,
               COLLECT = 9, HEAD = 10, FILLED = 11, SKIPPED = 12,
               SKIPPED_IN_A_ROW = 13 };
#define COUNTERS 16
#define ADAM_GROUPS 7

enum Schedule { S_TAU = 0, S_BETA = 1, S_EPSILON = 2, S_LEARNING_RATE = 3, S_BIAS = 4 };
#define SCHEDULES 24

enum ScheduleParam { P_TAU = 0, P_BETA = 4, P_EPSILON = 8, P_LEARNING_RATE = 12,
                     P_WARM_UP_STEPS = 16, P_ADAM_BETA1 = 17, P_ADAM_BETA2 = 18 };
#define SCHEDULE_PARAMS 20

enum ScheduleKind { K_CONSTANT = 0, K_LINEAR = 1, K_COSINE = 2 };

enum Flag { F_TERMINATED = 1, F_TRUNCATED = 2, F_INVALID = 4 };

enum Diagnostic { D_NONFINITE_TD = 0, D_STALE_UPDATE = 1, D_INVALID_ROW = 2 };
#define DIAGNOSTICS 8

enum LoopOrder { O_UNTIL = 0, O_STOP = 1, O_LIMIT = 2, O_BEGUN = 3 };
#define LOOP_ORDER 4

enum LoopReport { L_LEARNS = 0, L_COLLECTS = 1, L_ENDING = 2 };
#define LOOP_REPORT 3

enum LoopEnding { E_RUNNING = 0, E_REACHED = 1, E_STOPPED = 2, E_NONFINITE = 3 };

enum StreamTag { T_SAMPLE = 1, T_ACT = 2, T_RESET = 3, T_INIT = 4, T_DEPTH = 5, T_TAU = 6, T_NOISE = 7,
                 T_DENOISE = 8, T_HINDSIGHT = 9, T_TOSS = 10 };
