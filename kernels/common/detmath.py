"""float64 log, exp, pow and cos(pi x) that give the same bits here and on a GPU.

libm and CUDA's math library differ in the last bit of a float64 function. A priority computed on
the host in one stage and on the device in the next would then differ, once in some hundred million
times, after rounding to float32. These functions use only IEEE operations (+, -, *, /, sqrt) in one
stated order, without contraction, so ``detmath.cuh`` gives the same bits by construction. They are
within 4 units in the last place of the true value over the ranges the trainer uses.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]

_LN2_HI = 6.93147180369123816490e-01
_LN2_LO = 1.90821492927058770002e-10
_INV_LN2 = 1.44269504088896338700
_SQRT_HALF = 0.70710678118654752440
_PI = 3.14159265358979323846


def log64(x: ArrayLike) -> F64:
    """Natural logarithm; ``-inf`` at 0, NaN below, ``inf`` at infinity."""
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mantissa, exponent = np.frexp(x)
        low = mantissa < _SQRT_HALF
        mantissa = np.where(low, mantissa * 2.0, mantissa)
        e = (exponent - low).astype(np.float64)
        f = mantissa - 1.0
        s = f / (f + 2.0)
        z = s * s
        p = np.full_like(z, 1.0 / 23.0)
        for k in range(21, 0, -2):
            p = p * z + 1.0 / k
        result = e * _LN2_HI + ((s * 2.0) * p + e * _LN2_LO)
        result = np.where(x == 0.0, -np.inf, result)
        result = np.where(x == np.inf, np.inf, result)
        return np.where((x < 0.0) | np.isnan(x), np.nan, result)


def exp64(x: ArrayLike) -> F64:
    """E to the `x`; 0 below -745.2, ``inf`` above 709.79."""
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        bounded = np.where(np.isnan(x), 0.0, np.minimum(np.maximum(x, -746.0), 710.0))
        n = np.rint(bounded * _INV_LN2)
        r = (bounded - n * _LN2_HI) - n * _LN2_LO
        p = np.full_like(r, 1.0 / math.factorial(14))
        for k in range(13, -1, -1):
            p = p * r + 1.0 / math.factorial(k)
        half = np.floor(n * 0.5)
        result = (p * np.ldexp(1.0, half.astype(np.int64))) * np.ldexp(
            1.0, (n - half).astype(np.int64)
        )
        return np.where(np.isnan(x), np.nan, result)


def pow64(x: ArrayLike, y: ArrayLike) -> F64:
    """`x` to the `y` for x >= 0. Exact for the exponents 0, 1, 0.5 and -1."""
    x, y = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        result = exp64(y * log64(x))
        result = np.where(y == -1.0, 1.0 / x, result)
        result = np.where(y == 0.5, np.sqrt(x), result)
        result = np.where(y == 1.0, x, result)
    return np.where(y == 0.0, 1.0, result)


def cospi64(x: ArrayLike) -> F64:
    """cos(pi x) for x in [0, 1]; exactly 1, 0 and -1 at 0, 0.5 and 1."""
    x = np.asarray(x, np.float64)
    mirrored = np.where(x > 0.5, 1.0 - x, x)
    use_sin = mirrored > 0.25
    a = np.where(use_sin, 0.5 - mirrored, mirrored) * _PI
    t = a * a
    c = np.full_like(t, 1.0 / math.factorial(20))
    s = np.full_like(t, 1.0 / math.factorial(21))
    for k in range(9, -1, -1):
        sign = -1.0 if k % 2 else 1.0
        c = c * t + sign / math.factorial(2 * k)
        s = s * t + sign / math.factorial(2 * k + 1)
    value = np.where(use_sin, s * a, c)
    return np.where(x > 0.5, -value, value)
