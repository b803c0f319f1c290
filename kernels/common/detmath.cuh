// float64 functions that give the same bits as detmath.py: IEEE operations only, in one stated
// order, through the _rn intrinsics, which the compiler never contracts into fused multiply-adds.
#pragma once

__device__ inline double det_mul(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double det_add(double a, double b) { return __dadd_rn(a, b); }

// x * 2^n through the exponent field, -1022 <= n <= 1023.
__device__ inline double det_pow2(int n) { return __longlong_as_double((long long)(n + 1023) << 52); }

__device__ inline double det_log(double x) {
    if (isnan(x) || x < 0.0) return __longlong_as_double(0x7ff8000000000000LL);
    if (x == 0.0) return __longlong_as_double(0xfff0000000000000LL);
    if (isinf(x)) return x;
    int shift = 0;
    if (x < 2.2250738585072014e-308) { x = det_mul(x, 18014398509481984.0); shift = -54; }
    long long bits = __double_as_longlong(x);
    int exponent = (int)((bits >> 52) & 0x7ff) - 1022 + shift;
    double m = __longlong_as_double((bits & 0xfffffffffffffLL) | 0x3fe0000000000000LL);
    if (m < 0.70710678118654752440) { m = det_mul(m, 2.0); exponent -= 1; }
    double e = (double)exponent;
    double f = det_add(m, -1.0);
    double s = __ddiv_rn(f, det_add(f, 2.0));
    double z = det_mul(s, s);
    double p = 0.043478260869565216;
    p = det_add(det_mul(p, z), 0.047619047619047616);
    p = det_add(det_mul(p, z), 0.05263157894736842);
    p = det_add(det_mul(p, z), 0.058823529411764705);
    p = det_add(det_mul(p, z), 0.06666666666666667);
    p = det_add(det_mul(p, z), 0.07692307692307693);
    p = det_add(det_mul(p, z), 0.09090909090909091);
    p = det_add(det_mul(p, z), 0.1111111111111111);
    p = det_add(det_mul(p, z), 0.14285714285714285);
    p = det_add(det_mul(p, z), 0.2);
    p = det_add(det_mul(p, z), 0.3333333333333333);
    p = det_add(det_mul(p, z), 1.0);
    double tail = det_add(det_mul(det_mul(s, 2.0), p), det_mul(e, 1.90821492927058770002e-10));
    return det_add(det_mul(e, 6.93147180369123816490e-01), tail);
}

__device__ inline double det_exp(double x) {
    if (isnan(x)) return x;
    double b = x < -746.0 ? -746.0 : (x > 710.0 ? 710.0 : x);
    double n = rint(det_mul(b, 1.44269504088896338700));
    double r = det_add(det_add(b, -det_mul(n, 6.93147180369123816490e-01)),
                       -det_mul(n, 1.90821492927058770002e-10));
    double p = 1.1470745597729725e-11;
    p = det_add(det_mul(p, r), 1.6059043836821613e-10);
    p = det_add(det_mul(p, r), 2.08767569878681e-09);
    p = det_add(det_mul(p, r), 2.505210838544172e-08);
    p = det_add(det_mul(p, r), 2.755731922398589e-07);
    p = det_add(det_mul(p, r), 2.7557319223985893e-06);
    p = det_add(det_mul(p, r), 2.48015873015873e-05);
    p = det_add(det_mul(p, r), 0.0001984126984126984);
    p = det_add(det_mul(p, r), 0.001388888888888889);
    p = det_add(det_mul(p, r), 0.008333333333333333);
    p = det_add(det_mul(p, r), 0.041666666666666664);
    p = det_add(det_mul(p, r), 0.16666666666666666);
    p = det_add(det_mul(p, r), 0.5);
    p = det_add(det_mul(p, r), 1.0);
    p = det_add(det_mul(p, r), 1.0);
    double half = floor(det_mul(n, 0.5));
    return det_mul(det_mul(p, det_pow2((int)half)), det_pow2((int)det_add(n, -half)));
}

__device__ inline double det_pow(double x, double y) {
    if (y == 0.0) return 1.0;
    if (y == 1.0) return x;
    if (y == 0.5) return __dsqrt_rn(x);
    if (y == -1.0) return __ddiv_rn(1.0, x);
    return det_exp(det_mul(y, det_log(x)));
}

// sin(a) or cos(a) for a in [0, pi/4]. The terms are chosen, not the way: lanes that want one and lanes
// that want the other go together.
__device__ inline double det_quarter(double a, bool sine) {
    double t = det_mul(a, a);
    double p = sine ? 1.9572941063391263e-20 : 4.110317623312165e-19;
    p = det_add(det_mul(p, t), sine ? -8.22063524662433e-18 : -1.5619206968586225e-16);
    p = det_add(det_mul(p, t), sine ? 2.8114572543455206e-15 : 4.779477332387385e-14);
    p = det_add(det_mul(p, t), sine ? -7.647163731819816e-13 : -1.1470745597729725e-11);
    p = det_add(det_mul(p, t), sine ? 1.6059043836821613e-10 : 2.08767569878681e-09);
    p = det_add(det_mul(p, t), sine ? -2.505210838544172e-08 : -2.755731922398589e-07);
    p = det_add(det_mul(p, t), sine ? 2.7557319223985893e-06 : 2.48015873015873e-05);
    p = det_add(det_mul(p, t), sine ? -0.0001984126984126984 : -0.001388888888888889);
    p = det_add(det_mul(p, t), sine ? 0.008333333333333333 : 0.041666666666666664);
    p = det_add(det_mul(p, t), sine ? -0.16666666666666666 : -0.5);
    p = det_add(det_mul(p, t), 1.0);
    return sine ? det_mul(p, a) : p;
}

// cos(pi x) for x in [0, 1].
__device__ inline double det_cospi(double x) {
    double mirrored = x > 0.5 ? det_add(1.0, -x) : x;
    bool sine = mirrored > 0.25;
    double a = det_mul(sine ? det_add(0.5, -mirrored) : mirrored, 3.14159265358979323846);
    double value = det_quarter(a, sine);
    return x > 0.5 ? -value : value;
}
