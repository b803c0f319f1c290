// Two standard normal numbers from two uniforms in [0, 1), by Box-Muller; see normal.py.
#pragma once

#include "common/detmath.cuh"
#include "common/philox.cuh"

struct Normal2 { double z[2]; };

__device__ inline Normal2 normal_pair(Uniform2 draw) {
    double radius = __dsqrt_rn(det_mul(-2.0, det_log(det_add(1.0, -draw.u[0]))));
    double turn = det_mul(2.0, draw.u[1]);
    double shifted = fabs(det_add(turn, -0.5));
    Normal2 out;
    out.z[0] = det_mul(radius, det_cospi(turn > 1.0 ? det_add(2.0, -turn) : turn));
    out.z[1] = det_mul(radius, det_cospi(shifted > 1.0 ? det_add(2.0, -shifted) : shifted));
    return out;
}
