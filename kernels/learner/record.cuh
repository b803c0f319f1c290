// Elements of the published record and of a history row (publish.py: RecordField).
#pragma once

enum RecordField { R_STAMP_BEGIN = 0, R_LOSS = 1, R_GRAD_NORM = 2, R_TD_MEAN = 3, R_Q_MEAN = 4,
                   R_TD_MAX = 5, R_LEARNING_RATE = 6, R_TAU = 7, R_BETA = 8, R_EPSILON = 9,
                   R_ADAM_STEP = 10, R_SKIPPED = 11, R_NONFINITE_TD = 12, R_STALE_UPDATE = 13,
                   R_INVALID_ROW = 14, R_SKIPPED_IN_A_ROW = 15, R_STAMP_END = 16 };
#define RECORD 17
